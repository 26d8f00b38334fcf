"""Lists of destinations in requests, and their stored model. Rules name one as `list:NAME`.

A list has its entries itself, or a source that they are fetched from. One of kind `geo` has no entries: its source is a
database of places, of which rules name a part as `geo:NAME:country=DE` or `geo:NAME:asn=64500`.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from pydantic import BaseModel

from config.files.secret_box import SecretBox
from config.model import json_patterns
from config.model.choices import ListFormat, ListKind
from config.model.declaration import Given, Instant, LongList, gives, update
from config.model.fields import Body, FilePath, InvalidResource, TextList, example
from config.model.object_fields import Description, ListName
from config.model.sources import Source, SourceGiven, changed_source
from config.net.entries import GEO, read_network
from config.net.names import in_a_labels, read_domain

LIST_ENTRIES_MAX = 100_000
"""Entries that a list has itself."""
ENTRY_MAX = 254
"""Characters of an entry."""

MMDB: ListFormat = "mmdb"
PLAIN: ListFormat = "plain"
DOMAINS: ListKind = "domains"
_READERS = {DOMAINS: read_domain, "networks": read_network}


def _short(text: str) -> str:
    if not 0 < len(text) <= ENTRY_MAX:
        raise ValueError(f"must have 1 to {ENTRY_MAX} characters")
    return text


_ENTRY = f"{json_patterns.DOMAIN}|{json_patterns.IDN}|{json_patterns.NETWORK}"
ListEntries = Annotated[list[str], TextList(LIST_ENTRIES_MAX, _short, _ENTRY)]


class ListSource(Source):
    """Where the entries of a list come from: a `url`, or for a database a `file`."""

    file: Annotated[str | None, Given(FilePath)] = None
    format: Annotated[ListFormat, Given(ListFormat)] = "plain"

    @property
    def place(self) -> str:
        """The URL or the path."""
        return self.url or self.file or ""

    @property
    def form(self) -> str:
        """See `Source`."""
        return self.format


@gives(ListSource)
class SourceInput(SourceGiven):
    """`source` of a request: any part; what is not given stays. `url` and `file` take each other's place.

    `headers` are replaced as a whole. One whose value is null, empty or `***` keeps its value. Those stored are dropped
    with another scheme, host or port of the `url`, unless they are given anew.
    """

    file: FilePath | None = None
    format: ListFormat | None = None


class DestinationList(BaseModel):
    """A document of the collection `lists`. It has a `source`, or `entries`. Times are Unix seconds."""

    id: str
    name: Annotated[str, Given(ListName)]
    description: Annotated[str, Given(Description)] = ""
    kind: Annotated[ListKind, Given(ListKind)]
    entries: Annotated[list[str], LongList("entry")] = []
    source: ListSource | None = None
    created_at: Instant
    updated_at: Instant


_NOT_BOTH: dict[str, Any] = {"not": {"required": ["entries", "source"]}}
_TEXTS = {"kind": {"enum": ["domains", "networks"]}}
_TEXT_SOURCE: dict[str, Any] = {
    "type": "object",
    "required": ["url"],
    "properties": {"format": {"not": {"const": MMDB}}},
    "not": {"required": ["file"]},
}
_DATABASE: dict[str, Any] = {
    "type": "object",
    "properties": {"format": {"const": MMDB}},
    "oneOf": [{"required": ["url"]}, {"required": ["file"]}],
}
_CONTENT: list[Any] = [
    {"required": ["entries"], "properties": {**_TEXTS, "entries": {"type": "array"}}},
    {"required": ["source"], "properties": {**_TEXTS, "source": _TEXT_SOURCE}},
    {"required": ["source"], "properties": {"kind": {"const": GEO}, "source": _DATABASE}},
]


@gives(DestinationList)
class ListUpdate(Body):
    """A change of a list: what is not given stays. `entries` take the place of a source, and it that of entries."""

    model_config = example({"entries": ["example.com", "example.net"]}, **_NOT_BOTH)

    entries: ListEntries | None = None
    source: SourceInput | None = None


class ListCreate(ListUpdate):
    """A new list, with `entries` or a `source`."""

    model_config = example(
        {
            "name": "mirrors",
            "description": "where packages come from",
            "kind": "domains",
            "entries": ["pypi.example", "mirror.example.net"],
        },
        anyOf=_CONTENT,
        **_NOT_BOTH,
    )

    name: ListName
    kind: ListKind


def new_list(body: ListCreate, now: float, seal: SecretBox) -> DestinationList:
    """The list that `body` describes. Raises `InvalidResource`, `SecretBoxError`."""
    blank = DestinationList(
        id="list_" + secrets.token_hex(8), name=body.name, kind=body.kind, created_at=now, updated_at=now
    )
    if body.entries is None and body.source is None:
        if body.kind == GEO:
            raise InvalidResource("source", "is required: a list of kind geo is a database")
        raise InvalidResource("entries", "is required, unless the list has a source")
    return change_list(blank, body, now, seal)


def change_list(before: DestinationList, body: ListUpdate, now: float, seal: SecretBox) -> DestinationList:
    """`before` with the changes of `body`. Raises `InvalidResource`, `SecretBoxError`."""
    if body.entries is not None and body.source is not None:
        raise InvalidResource("source", "must be left out where entries are given")
    changed: dict[str, Any] = {**update(before, body), "updated_at": now}
    if body.entries is not None:
        changed |= {"entries": _written(changed.get("kind", before.kind), body.entries), "source": None}
    if body.source is not None:
        changed |= {"entries": [], "source": _source(before.source, body.source, seal)}
    after = before.model_copy(update=changed)
    given = None if body.source is None else body.source.format
    after = after.model_copy(update={"source": _formatted(after, given)})
    _check_entries(after)
    return after


def _source(before: ListSource | None, given: SourceInput, seal: SecretBox) -> ListSource:
    if given.url is not None and given.file is not None:
        raise InvalidResource("source.file", "must be left out where url is given")
    return changed_source(before, ListSource(), given, seal)


def _formatted(whole: DestinationList, given: ListFormat | None) -> ListSource | None:
    """The source with the format that a list of this kind has. Raises `InvalidResource`."""
    source = whole.source
    if whole.kind == GEO:
        if source is None:
            raise InvalidResource("source", "is required: a list of kind geo is a database")
        if given not in (None, MMDB):
            raise InvalidResource("source.format", "must be mmdb, or left out, in a list of kind geo")
        return source.model_copy(update={"format": MMDB})
    if source is None:
        return None
    if source.file is not None:
        raise InvalidResource("source.file", "is only for a list of kind geo: the content of others is shown")
    if given == MMDB:
        raise InvalidResource("source.format", "must be another one than mmdb, which is of lists of kind geo")
    return source.model_copy(update={"format": PLAIN}) if source.format == MMDB else source


def _written(kind: ListKind, entries: list[str]) -> list[str]:
    """Domains in A-labels."""
    made = list(entries)
    for index, entry in enumerate(entries if kind == DOMAINS else ()):
        try:
            made[index] = in_a_labels(entry)
        except ValueError as error:
            raise InvalidResource(f"entries[{index}]", str(error)) from error
    return made


def _check_entries(whole: DestinationList) -> None:
    """Each entry is of the kind of the list."""
    read = _READERS.get(whole.kind)
    if read is None:
        return
    for index, entry in enumerate(whole.entries):
        try:
            read(entry)
        except ValueError as error:
            raise InvalidResource(f"entries[{index}]", str(error)) from error
