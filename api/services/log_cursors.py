"""The cursors of access records: the end of a page, and the record after which a tail continues.

A cursor of a page contains the times of the search, its position, the last record that its first page could see, and a
checksum of the filters: all pages of a search are of the same records. It is no secret and protects nothing: a forged
one returns only records that the filters and the credential allow.
"""

from __future__ import annotations

import base64
import math
import zlib
from dataclasses import dataclass
from typing import Any

import msgpack

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
        return _text([_PAGE, self.start, self.end, *self.position, self.upto, self.filters])

    @classmethod
    def of(cls, text: str) -> PageCursor:
        """Raises `ValueError`."""
        content = _content(text, _PAGE, 6)
        start, end, *numbers = content
        if not (_is_time(start) and _is_time(end) and all(map(_is_number, numbers))):
            raise _not_ours()
        time, number, upto, filters = numbers
        return cls(float(start), float(end), (time, number), upto, filters)


def tail_text(after: int) -> str:
    """The cursor of a tail that continues after this record."""
    return _text([_TAIL, after])


def tail_of(text: str) -> int:
    """The inverse of `tail_text`. Raises `ValueError`."""
    (after,) = _content(text, _TAIL, 1)
    if not _is_number(after):
        raise _not_ours()
    return int(after)


def checksum(filters: list[Any]) -> int:
    """Of the filters of a search."""
    return zlib.crc32(msgpack.packb(filters))


def _text(content: list[Any]) -> str:
    return base64.urlsafe_b64encode(msgpack.packb(content)).decode().rstrip("=")


def _content(text: str, kind: int, count: int) -> list[Any]:
    try:
        content = msgpack.unpackb(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise _not_ours() from error
    if not isinstance(content, list) or len(content) != count + 1 or content[0] != kind:
        raise _not_ours()
    return content[1:]


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value < _LATEST


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _not_ours() -> ValueError:
    return ValueError("must be a cursor of an earlier response of this operation")
