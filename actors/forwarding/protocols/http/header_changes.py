"""Header fields of plain requests that a proxy, or a rule of a policy, sets and removes.

They are changed in the head as it would be sent: what `Connection` has named is gone then, and what is set stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from config.net.field_names import OWN_FIELDS, canonical_name

_END: Final = b"\r\n\r\n"
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?", re.ASCII)

FieldChanges = Mapping[bytes, bytes | None]
"""By canonical names: the line to set, or None to remove the field."""


class HeaderChanges(NamedTuple):
    """`removed` are canonical names, those that are set among them; `lines` are the fields to set."""

    removed: frozenset[bytes]
    lines: tuple[bytes, ...]

    def apply(self, head: bytes) -> bytes:
        """The head of a request, as it would be sent, with the changes."""
        first, *lines = head.removesuffix(_END).split(b"\r\n")
        kept = (line for line in lines if canonical_field(line) not in self.removed)
        return b"\r\n".join((first, *kept, *self.lines)) + _END


def canonical_field(line: bytes) -> bytes:
    """The canonical name of the field in a line."""
    return line.partition(b":")[0].lower().replace(b"_", b"-")


def field_changes(to_set: Iterable[tuple[str, str]], to_remove: Iterable[str]) -> FieldChanges:
    """What these names and values change.

    Raises `ValueError` for a field that may not be changed, and for what would not be one field.
    """
    changes: dict[bytes, bytes | None] = {_checked_name(name): None for name in to_remove}
    changes.update((_checked_name(name), f"{name}: {_checked_value(name, value)}".encode()) for name, value in to_set)
    return changes


def merged(changes: Iterable[FieldChanges]) -> HeaderChanges | None:
    """All of them; of two that change one field the first decides. None: nothing."""
    fields: dict[bytes, bytes | None] = {}
    for each in changes:
        fields = {**each, **fields}
    if not fields:
        return None
    return HeaderChanges(frozenset(fields), tuple(line for line in fields.values() if line))


def _checked_name(name: str) -> bytes:
    found = canonical_name(name)
    if _NAME.fullmatch(name) is None or found in OWN_FIELDS:
        raise ValueError(f"{name!r} may be neither set nor removed")
    return found.encode()


def _checked_value(name: str, value: str) -> str:
    if _VALUE.fullmatch(value) is None:
        raise ValueError(f"the value of {name} is not one of a header field")
    return value
