"""`access` of a proxy: lists of entries for clients and for destinations (`config.net.entries`), and whether they are
enforced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from config.model import json_patterns
from config.model.declaration import Given, Group
from config.net.entries import read_entry, read_network
from config.net.names import in_a_labels

ENTRIES_MAX = 10_000
"""Entries in one list."""


def each_entry(read: Callable[[str], object], written: Callable[[str], str] = str) -> Callable[[Any], Any]:
    """A check of a list that names the entry at fault. What it has is kept as `written` makes it."""

    def check(given: Any) -> Any:
        if not isinstance(given, (list, tuple)):
            return given
        kept = []
        for index, entry in enumerate(given):
            if not isinstance(entry, str):
                raise PydanticCustomError("bad_entry", "must be a string", {"index": index})
            try:
                kept.append(written(entry))
                read(kept[-1])
            except ValueError as error:
                raise PydanticCustomError("bad_entry", "{why}", {"index": index, "why": str(error)}) from error
        return kept

    return check


Clients = Annotated[
    list[str],
    Field(max_length=ENTRIES_MAX),
    BeforeValidator(each_entry(read_network)),
    json_patterns.texts(json_patterns.NETWORK, ENTRIES_MAX),
]
Destinations = Annotated[
    list[str],
    Field(max_length=ENTRIES_MAX),
    BeforeValidator(each_entry(read_entry, in_a_labels)),
    json_patterns.texts(json_patterns.WRITTEN_DESTINATION, ENTRIES_MAX),
]
Mode = Literal["enforce", "report"]


class ProxyAccess(Group):
    """The access rules. In an update a list that is given replaces the old one.

    Without an entry every client may go everywhere, as far as the egress guard allows it.
    """

    allow_clients: Annotated[list[str], Given(Clients)] = Field(default_factory=list)
    deny_clients: Annotated[list[str], Given(Clients)] = Field(default_factory=list)
    allow_destinations: Annotated[list[str], Given(Destinations)] = Field(default_factory=list)
    deny_destinations: Annotated[list[str], Given(Destinations)] = Field(default_factory=list)
    mode: Annotated[Mode, Given(Mode)] = "enforce"
