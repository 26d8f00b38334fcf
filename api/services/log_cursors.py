"""The cursors of access records: the end of a page, and the record after which a tail continues.

A cursor of a page contains the times of the search, its position, the last record that its first page could see, and a
checksum of the filters: all pages of a search are of the same records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from api.http.query import cursor_content, cursor_text, foreign_cursor

_PAGE, _TAIL = 1, 2
_MOST = 2**63 - 1
_LATEST = 1e12


@dataclass(frozen=True, slots=True)
class PageCursor:
    """`position` is (microseconds, number); see `actors.bus.messages.records.LogPage`."""

    start: float
    end: float
    position: tuple[int, int]
    upto: int
    filters: int

    def text(self) -> str:
        """As `next_cursor`."""
        return cursor_text([_PAGE, self.start, self.end, *self.position, self.upto, self.filters])

    @classmethod
    def of(cls, text: str) -> PageCursor:
        """Raises `ValueError`."""
        content = cursor_content(text, _PAGE, 6)
        start, end, *numbers = content
        if not (_is_time(start) and _is_time(end) and all(map(_is_number, numbers))):
            raise foreign_cursor()
        time, number, upto, filters = numbers
        return cls(float(start), float(end), (time, number), upto, filters)


def tail_text(after: int) -> str:
    """The cursor of a tail that continues after this record."""
    return cursor_text([_TAIL, after])


def tail_of(text: str) -> int:
    """The inverse of `tail_text`. Raises `ValueError`."""
    (after,) = cursor_content(text, _TAIL, 1)
    if not _is_number(after):
        raise foreign_cursor()
    return int(after)


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value < _LATEST


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST
