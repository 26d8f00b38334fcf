"""Tables with a bound: the entry that was put in first makes room, so that a flood of new keys costs one old each."""

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
