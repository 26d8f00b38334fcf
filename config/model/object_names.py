"""Which objects others name: policies and lists in entries, and how such names are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

PREFIXES = {"list:": "lists", "geo:": "lists", "pool:": "pools"}
"""What a text begins with that names an object of a collection: `list:mirrors:443`, `geo:world:country=DE`."""


class Named(NamedTuple):
    """That `field` names an object of a collection."""

    collection: str
    name: str
    field: str


def named_in(texts: Iterable[str], field: str) -> Iterator[Named]:
    """The objects that the entries of a list name; `field` is that of the list."""
    for index, text in enumerate(texts):
        found = named_by(text, f"{field}[{index}]")
        if found is not None:
            yield found


def named_by(text: str, field: str) -> Named | None:
    """The object that a text names, None if it is none."""
    prefix, colon, rest = text.partition(":")
    collection = PREFIXES.get(prefix + colon)
    return None if collection is None else Named(collection, rest.partition(":")[0], field)
