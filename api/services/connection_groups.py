"""Counts of connections from several processes: each sends its largest groups, and those of one value are added."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from actors.bus.messages.forwarding import ConnectionGroups

Counts = tuple[int, int, int]
"""Connections, bytes in, bytes out."""


@dataclass(frozen=True, slots=True)
class Group:
    """The connections with one value: how many, and their bytes."""

    value: str
    count: int
    bytes_in: int
    bytes_out: int


class FetchedGroups:
    """The largest groups of each process, as far as they were fetched."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Counts]] = {}
        self._totals: dict[str, int] = {}

    def count(self, actor: str) -> int:
        """How many were fetched of this process."""
        return len(self._known.get(actor, ()))

    def add(self, pages: Mapping[str, ConnectionGroups]) -> None:
        """Further pages. One without anything new is the last of its process: what was beyond it has gone."""
        for actor, page in pages.items():
            known = self._known.setdefault(actor, {})
            before = len(known)
            known.update(page.groups)
            self._totals[actor] = page.total if len(known) > before else before

    def complete(self, pages: Mapping[str, ConnectionGroups]) -> None:
        """The counts of values that were `missing`."""
        for actor, page in pages.items():
            self._known[actor].update(page.groups)

    def drop(self, actor: str) -> None:
        """Forget a process."""
        self._known.pop(actor, None)
        self._totals.pop(actor, None)

    def unfinished(self, end: int) -> set[str]:
        """The processes with more groups, of which fewer than `end` were fetched."""
        return {actor for actor, known in self._known.items() if len(known) < min(end, self._totals[actor])}

    def missing(self, values: Collection[str]) -> dict[str, tuple[str, ...]]:
        """By process with more groups than were fetched, those of these values that are not among them."""
        more = {actor: known for actor, known in self._known.items() if len(known) < self._totals[actor]}
        found = {actor: tuple(each for each in values if each not in known) for actor, known in more.items()}
        return {actor: absent for actor, absent in found.items() if absent}

    def total(self) -> int:
        """How many groups there are at least; so many where all were fetched."""
        values = set().union(*self._known.values())
        return max(len(values), *self._totals.values(), 0)

    def merged(self) -> list[Group]:
        """All that were fetched, the largest first."""
        return merged(each for known in self._known.values() for each in known.items())


def merged(groups: Iterable[tuple[str, Counts]]) -> list[Group]:
    """Those with the same value added, the largest first."""
    sums: dict[str, Counts] = {}
    for value, counts in groups:
        count, bytes_in, bytes_out = sums.get(value, (0, 0, 0))
        sums[value] = (count + counts[0], bytes_in + counts[1], bytes_out + counts[2])
    found = (Group(value, *counts) for value, counts in sums.items())
    return sorted(found, key=lambda each: (-each.count, -each.bytes_in - each.bytes_out, each.value))
