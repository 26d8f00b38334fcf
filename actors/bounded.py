"""Tables with a bound: a new key replaces the oldest entry, so that a flood of new keys cannot fill the memory."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def keep(table: dict[Key, Value], key: Key, value: Value, size: int) -> None:
    """Put `value` in, as the newest entry; a table of `size` entries loses its oldest for a new key."""
    if key in table:
        del table[key]
    elif len(table) >= size:
        del table[next(iter(table))]
    table[key] = value
