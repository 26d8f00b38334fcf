"""Which processes live, for all that count in tables: one word for each place, with the number of its process.

The supervisor gives a process its number before it starts it, and takes the place back when the kernel says that it has
ended: at once it is out of every sum, and nothing goes through what it had counted. A number is never used again, since
an instance isn't.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from actors.mapped_file import MARK, Words, make_file, map_file, mark

UNOWNED: Final = 0
"""The number of a process without a place: it counts for itself alone."""
PLACES: Final = 4096
"""LivingProcesses that count together."""

_PLACE_BITS: Final = 12
PLACE_MASK: Final = PLACES - 1
_MAGIC: Final = b"pflive\0\1"
_FIRST: Final = 8
"""The word of the first place; the mark is before it."""
_SIZE: Final = 8 * (_FIRST + PLACES)


def instance_of(number: int) -> int:
    """The instance of a process with this number."""
    return number >> _PLACE_BITS


class LivingProcesses:
    """The places, as processes see them."""

    __slots__ = ("places",)

    def __init__(self, words: Words) -> None:
        self.places: Words = words[_FIRST:]
        """A number is at its lower bits, `PLACE_MASK`, while its process lives."""

    def lives(self, number: int) -> bool:
        """Whether this process lives."""
        return number != UNOWNED and self.places[number & PLACE_MASK] == number

    def instances(self) -> set[int]:
        """Those that live."""
        return {instance_of(number) for number in self.places.tolist() if number != UNOWNED}


NO_PROCESSES: Final = LivingProcesses(memoryview(bytes(_SIZE)).cast("Q"))
"""For one that counts for itself alone."""


class ProcessPlaces(LivingProcesses):
    """The places, for the supervisor."""

    __slots__ = ("_numbers",)

    def __init__(self, words: Words) -> None:
        super().__init__(words)
        self._numbers: dict[int, int] = {}
        """By instance."""

    def adopt(self, living: Collection[int]) -> None:
        """These instances, which an earlier program has started, live on. All others have ended."""
        self._numbers = {instance_of(number): number for number in self.places.tolist() if number != UNOWNED}
        for instance in self.instances() - set(living):
            self.end(instance)

    def begin(self, instance: int) -> int:
        """The number of a process that is started now; `UNOWNED` when all places are taken."""
        known = self._numbers.get(instance)
        if known is not None:
            return known
        places = self.places.tolist()
        if UNOWNED not in places[1:]:
            return UNOWNED
        place = places.index(UNOWNED, 1)
        number = self._numbers[instance] = instance << _PLACE_BITS | place
        self.places[place] = number
        return number

    def end(self, instance: int) -> None:
        """This process has ended, or was never started."""
        number = self._numbers.pop(instance, UNOWNED)
        if self.lives(number):
            self.places[number & PLACE_MASK] = UNOWNED


def open_processes(path: Path) -> LivingProcesses | None:
    """The places as they are; None without a file of this format and boot. Raises `OSError`."""
    raw = map_file(path, _SIZE.__eq__, writes=False)
    return LivingProcesses(raw.cast("Q")) if raw is not None and raw[:MARK] == mark(_MAGIC) else None


def make_places(path: Path) -> ProcessPlaces:
    """The places that are there, or new ones. Raises `OSError`."""
    raw = map_file(path, _SIZE.__eq__)
    if raw is None or raw[:MARK] != mark(_MAGIC):
        raw = make_file(path, _SIZE, _fill)
    return ProcessPlaces(raw.cast("Q"))


def _fill(raw: memoryview) -> None:
    raw[:MARK] = mark(_MAGIC)
