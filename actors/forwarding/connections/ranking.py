"""The first rows of many in their order, without sorting all of them at once."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = tuple[Any, int, T]
"""What it is sorted by, a number (ties go by it, so that pages don't overlap), and what is ranked."""

RUN: Final = 2_000
"""Rows that are sorted at once; a millisecond or two."""


_ORDER = itemgetter(0, 1)


class Ranking(Generic[T]):
    """Takes rows in any order, and has the first `kept` of them in that of `Row`, or its reverse."""

    def __init__(self, kept: int, reverse: bool) -> None:
        self._kept = kept
        self._reverse = reverse
        self._runs: list[list[Row[T]]] = []
        self._new: list[Row[T]] = []
        self.total = 0
        """How many rows were added."""

    def add(self, row: Row[T]) -> None:
        """Take one more."""
        self.total += 1
        self._new.append(row)
        if len(self._new) == RUN:
            self._sort()

    def _sort(self) -> None:
        """Sort the new ones, and drop those that can't be among the first."""
        self._new.sort(key=_ORDER, reverse=self._reverse)
        del self._new[self._kept :]
        if len(self._new) > RUN // 2:
            self._runs.append(self._new)
            self._new = []

    def first(self) -> Iterator[Row[T]]:
        """The first `kept` in order, found one by one."""
        self._sort()
        merged = heapq.merge(*self._runs, self._new, key=_ORDER, reverse=self._reverse)
        return islice(merged, self._kept)

    def __repr__(self) -> str:
        return f"<Ranking of the first {self._kept} of {self.total}>"
