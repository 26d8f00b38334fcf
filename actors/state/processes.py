"""Which processes live, for all that count in tables: one word for each place, with the number of its process.

The supervisor gives a process its number before it starts it, and takes the place back when the kernel says that it has
ended: at once it is out of every sum, and nothing goes through what it had counted. A number is never used again, since
an instance isn't; of an instance, which is made of microseconds, it has the lower bits, the same after 18 years.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from pathlib import Path
from typing import Final

from actors.mapped_file import MARK, Words, make_file, map_file, mark

UNOWNED: Final = 0
"""The number of a process without a place: it counts for itself alone."""
_PLACE_BITS: Final = 15
PLACES: Final = 1 << _PLACE_BITS
"""Processes that count together, and one: enough for 10,000 proxies at an upgrade, when each has two or three."""

_INSTANCES: Final = 1 << 64 - _PLACE_BITS
PLACE_MASK: Final = PLACES - 1
_MAGIC: Final = b"pflive\0\2"
_FIRST: Final = 8
"""The word of the first place; the mark is before it."""
_SIZE: Final = 8 * (_FIRST + PLACES)


def short(instance: int) -> int:
    """As much of an instance as is in a number."""
    return instance % _INSTANCES


def instance_of(number: int) -> int:
    """The instance of a process with this number, `short`."""
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
        """Those that live, `short`."""
        return {instance_of(number) for number in self.places.tolist() if number != UNOWNED}


NO_PROCESSES: Final = LivingProcesses(memoryview(bytes(_SIZE)).cast("Q"))
"""For one that counts for itself alone."""


class ProcessPlaces(LivingProcesses):
    """The places, for the supervisor."""

    __slots__ = ("_last", "_numbers")

    def __init__(self, words: Words) -> None:
        super().__init__(words)
        self._numbers: dict[int, int] = {}
        """By instance, `short`."""
        self._last = 0
        """The place that was taken last."""

    def adopt(self, living: Collection[int]) -> None:
        """These instances, which an earlier program has started, live on. All others have ended."""
        self._numbers = {instance_of(number): number for number in self.places.tolist() if number != UNOWNED}
        for instance in self.instances() - set(map(short, living)):
            self.end(instance)

    def begin(self, instance: int) -> int:
        """The number of a process that is started now; `UNOWNED` when all places are taken."""
        instance = short(instance)
        known = self._numbers.get(instance)
        if known is not None:
            return known
        for place in chain(range(self._last + 1, PLACES), range(1, self._last + 1)):
            if self.places[place] == UNOWNED:
                number = self.places[place] = self._numbers[instance] = instance << _PLACE_BITS | place
                self._last = place
                return number
        return UNOWNED

    def end(self, instance: int) -> None:
        """This process has ended, or was never started."""
        number = self._numbers.pop(short(instance), UNOWNED)
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
