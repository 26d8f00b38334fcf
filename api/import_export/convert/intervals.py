"""Sets of whole numbers as sorted ranges: ports, minutes of a week, addresses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Range = tuple[int, int]
"""Both ends included."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """Ranges in order, apart from one another. Made by `of`."""

    ranges: tuple[Range, ...]

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Intervals:
        """The set of all that is in any of the ranges."""
        merged: list[Range] = []
        for low, high in sorted(ranges):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], high))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    @classmethod
    def union(cls, sets: Iterable[Intervals]) -> Intervals:
        """All that is in any of them."""
        return cls.of(span for each in sets for span in each.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __le__(self, other: Intervals) -> bool:
        """Whether all of it is in the other."""
        if not self.ranges or not other.ranges:
            return not self.ranges
        if self.ranges[0][0] < other.ranges[0][0] or self.ranges[-1][1] > other.ranges[-1][1]:
            return False
        return self & other == self

    def __and__(self, other: Intervals) -> Intervals:
        found, left, right = [], 0, 0
        while left < len(self.ranges) and right < len(other.ranges):
            (low, high), (from_, to) = self.ranges[left], other.ranges[right]
            if max(low, from_) <= min(high, to):
                found.append((max(low, from_), min(high, to)))
            left, right = (left + 1, right) if high < to else (left, right + 1)
        return Intervals(tuple(found))

    def outside(self, low: int, high: int) -> Intervals:
        """What of `low` to `high` is not in it."""
        found, start = [], low
        for first, last in self.ranges:
            if first > start:
                found.append((start, min(first - 1, high)))
            start = max(start, last + 1)
        if start <= high:
            found.append((start, high))
        return Intervals(tuple(each for each in found if each[0] <= each[1]))
