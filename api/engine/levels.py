"""Levels of documents: while nodes of a fleet have different releases, each knows which documents it can read.

A release has a level, which is one more than that of the release before it when documents may have a field that this
one would lose. Such a field is a row of `FIELDS`. A document has the lowest level that knows all its fields, so what
does not use the new ones can be read and changed by nodes of both releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FIRST = 1
"""The level of documents that each release can read."""


class LeveledField(NamedTuple):
    """A field that needs a level, unless it has its default."""

    level: int
    default: Any = None


@dataclass(frozen=True, slots=True)
class Levels:
    """What a program can write: up to this level, by fields, each named by its collection and its path with dots."""

    level: int
    fields: Mapping[tuple[str, str], LeveledField] = field(default_factory=dict)

    def of(self, collection: str, body: Mapping[str, Any] | None) -> int:
        """The level of a document; a deletion needs none."""
        return max((self.fields[each].level for each in self.used(collection, body)), default=FIRST)

    def used(self, collection: str, body: Mapping[str, Any] | None) -> list[tuple[str, str]]:
        """The fields of a document that need a level."""
        if body is None:
            return []
        return [
            each
            for each, (_, default) in self.fields.items()
            if each[0] == collection and _value(body, each[1], default) != default
        ]


def _value(body: Any, path: str, default: Any) -> Any:
    for name in path.split("."):
        if not isinstance(body, Mapping) or name not in body:
            return default
        body = body[name]
    return body


LEVELS = Levels(level=1, fields={})
"""Those of this release."""
