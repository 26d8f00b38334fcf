"""The first rows of many in their order, without sorting all of them at once."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from typing import Any, Final, NamedTuple

from actors.forwarding.connection import Connection

RUN: Final = 2_000
"""Rows that are sorted at once; a millisecond or two."""


class Row(NamedTuple):
    """What it is sorted by, its number (ties go by age, so that pages don't overlap), and the connection."""

    key: Any
    number: int
    connection: Connection


_ORDER = itemgetter(0, 1)


class Ranking:
    """Takes rows in any order, and has the first `kept` of them in that of `Row`, or its reverse."""

    def __init__(self, kept: int, reverse: bool) -> None:
        self._kept = kept
        self._reverse = reverse
        self._runs: list[list[Row]] = []
        self._new: list[Row] = []
        self.total = 0
        """How many rows were added."""

    def add(self, row: Row) -> None:
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

    def first(self) -> Iterator[Row]:
        """The first `kept` in order, found one by one."""
        self._sort()
        merged = heapq.merge(*self._runs, self._new, key=_ORDER, reverse=self._reverse)
        return islice(merged, self._kept)

    def __repr__(self) -> str:
        return f"<Ranking of the first {self._kept} of {self.total}>"
