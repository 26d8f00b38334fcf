"""The text of cursors, and the cursor of a sorted list.

A cursor is base64 of msgpack: its kind, then its content. It is no secret and protects nothing: a forged one returns
only what the filters and the credential allow.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from typing import Any

import msgpack

from api.errors import Invalid

PATTERN = "^[A-Za-z0-9_-]{1,1000}$"
_MOST = 2.0**53
"""Numbers below it are exact, and fit into a database."""
LIST = 3
"""The kind of `ListCursor`; 1 and 2 are those of access records (`api.services.log_cursors`)."""


def cursor_text(content: list[Any]) -> str:
    """The text of a cursor; the first item is its kind."""
    return base64.urlsafe_b64encode(msgpack.packb(content)).decode().rstrip("=")


def cursor_content(text: str, kind: int, count: int) -> list[Any]:
    """What is in a cursor of this kind beside the kind: so many items. Raises `ValueError`."""
    try:
        content = msgpack.unpackb(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise foreign_cursor() from error
    if not isinstance(content, list) or len(content) != count + 1 or content[0] != kind:
        raise foreign_cursor()
    return content[1:]


def foreign_cursor() -> ValueError:
    """The error for a text that no response had as a cursor."""
    return ValueError("must be a cursor of an earlier response of this operation")


def checksum(filters: list[Any]) -> int:
    """Of the filters of a search, for its cursor."""
    return zlib.crc32(msgpack.packb(filters))


@dataclass(frozen=True, slots=True)
class ListCursor:
    """The place behind an entry of a sorted list: what it is sorted by (text or number), and its id.

    It does not depend on the entry, which may be deleted, or on the number of entries before it.
    """

    position: tuple[Any, str]
    filters: int
    """The checksum of filters and order."""

    def text(self) -> str:
        """As `next_cursor`."""
        return cursor_text([LIST, *self.position, self.filters])

    @classmethod
    def of(cls, text: str) -> ListCursor:
        """Raises `ValueError`."""
        value, identifier, filters = cursor_content(text, LIST, 3)
        if not (_is_value(value) and type(identifier) is str and type(filters) is int):
            raise foreign_cursor()
        return cls((value, identifier), filters)

    def position_in(self, filters: int) -> tuple[Any, str]:
        """The position in the list with these filters. Raises `Invalid` when it is of another list."""
        if self.filters != filters:
            raise Invalid("cursor", "is of a list with other filters or another order")
        return self.position


EXAMPLE = ListCursor(("office", "prx_0123456789abcdef"), 0).text()


def _is_value(value: Any) -> bool:
    return type(value) is str or (type(value) in (int, float) and abs(value) < _MOST)
