"""Tables with a bound: new keys replace the oldest entries, so that a flood of new keys cannot fill the memory."""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

PART = 32
"""A full table loses this part of its entries at once, since finding the oldest passes over all that were deleted."""


def keep(table: dict[Key, Value], key: Key, value: Value, size: int) -> None:
    """Put `value` in, as the newest entry; a table of `size` entries loses its oldest, 1/32 of them, for a new key."""
    if key in table:
        del table[key]
    elif len(table) >= size:
        for oldest in tuple(islice(table, max(1, size // PART))):
            del table[oldest]
    table[key] = value
