"""The cursor of a page of accounts: where the page before ended, and a checksum of the filters.

It is no secret and protects nothing: a forged one leads to other accounts of the same list.
"""

from __future__ import annotations

import base64
import math
import zlib
from dataclasses import astuple, dataclass
from typing import Any

import msgpack

from api.store.accounts import AccountSelection, Position

PATTERN = "^[A-Za-z0-9_-]{1,1500}$"
EXAMPLE = "k6VhbGljZbRhY2NfMDEyMzQ1Njc4OWFiY2RlZs4AvGFO"


@dataclass(frozen=True, slots=True)
class AccountCursor:
    """`filters` is the checksum of the selection."""

    position: Position
    filters: int

    def text(self) -> str:
        """As `next_cursor`."""
        return base64.urlsafe_b64encode(msgpack.packb([*self.position, self.filters])).decode().rstrip("=")

    @classmethod
    def of(cls, text: str) -> AccountCursor:
        """Raises `ValueError`."""
        try:
            content = msgpack.unpackb(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            raise _not_ours() from error
        if not isinstance(content, list) or len(content) != 3:
            raise _not_ours()
        value, identifier, filters = content
        if not (_is_value(value) and isinstance(identifier, str) and type(filters) is int):
            raise _not_ours()
        return cls((value, identifier), filters)


def checksum(selection: AccountSelection) -> int:
    """Of the filters and the order."""
    return zlib.crc32(msgpack.packb(astuple(selection)))


def _is_value(value: Any) -> bool:
    return isinstance(value, str) or (type(value) is float and math.isfinite(value))


def _not_ours() -> ValueError:
    return ValueError("must be a cursor of an earlier response of this operation")
