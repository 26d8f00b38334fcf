"""Lists of destinations in requests, and their stored model. Rules name one as `list:NAME`.

A list has its entries itself, or a source that they are fetched from. One of kind `geo` has no entries: its source is a
database of places, of which rules name a part as `geo:NAME:country=DE` or `geo:NAME:asn=64500`.

Lists and pools have the same fields of a source.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, StrictInt

from config.files.secret_box import SecretBox
from config.model import json_patterns
from config.model.choices import MASK, ListFormat, ListKind
from config.model.declaration import Given, Group, Instant, LongList, gives, update
from config.model.fields import Body, FilePath, InvalidResource, TextList, example
from config.model.object_fields import Description, ListName
from config.model.webhooks import SparseHeaders, Url, sealed_headers, sparse_headers
from config.net.entries import GEO, read_network
from config.net.names import in_a_labels, read_domain

INTERVAL_MIN, INTERVAL_MAX = 60, 30 * 24 * 3600
MAX_BYTES_MIN, MAX_BYTES_MAX = 1024, 1024**3
SOURCE_HEADERS_MAX = 20

Interval = Annotated[StrictInt, Field(ge=INTERVAL_MIN, le=INTERVAL_MAX)]
MaxBytes = Annotated[StrictInt, Field(ge=MAX_BYTES_MIN, le=MAX_BYTES_MAX)]
SourceHeaders = Annotated[SparseHeaders, Field(max_length=SOURCE_HEADERS_MAX), sparse_headers(SOURCE_HEADERS_MAX)]


class Source(Group):
    """Where something is fetched from. `interval` is the seconds between two requests, `max_bytes` the most to receive.

    `headers` are sent with requests; their values are sealed.
    """

    url: Annotated[str | None, Given(Url)] = None
    interval: Annotated[int, Given(Interval)] = 24 * 3600
    max_bytes: Annotated[int, Given(MaxBytes)] = 64 * 1024 * 1024
    headers: dict[str, str] | None = Field(None, repr=False)

    @property
    def place(self) -> str:
        """What it is fetched from."""
        return self.url or ""

    @property
    def form(self) -> str:
        """How what is fetched is read: what is fetched once more if this changes."""
        raise NotImplementedError

    def view(self) -> dict[str, Any]:
        """What there is of it, with the names of the headers alone."""
        headers = {} if self.headers is None else {"headers": dict.fromkeys(self.headers, MASK)}
        return self.model_dump(exclude_none=True) | headers


@gives(Source)
class SourceGiven(Body):
    """`source` of a request: any part; what is not given stays.

    `headers` are replaced as a whole. One whose value is null, empty or `***` keeps its value. Those stored are dropped
    with another scheme, host or port of the `url`, unless they are given anew.
    """

    url: Url | None = None
    headers: SourceHeaders | None = Field(None, repr=False)


S = TypeVar("S", bound=Source)
T = TypeVar("T")


def changed_source(before: S | None, blank: S, given: SourceGiven, seal: SecretBox) -> S:
    """The source with what is given; `blank` is one without anything. Raises `InvalidResource`, `SecretBoxError`."""
    after = (before or blank).model_copy(update=_changes(before or blank, given))
    if not after.place:
        raise InvalidResource("source.url", "is required")
    return after.model_copy(update={"headers": _headers(before, after, given.headers, seal)})


def _changes(before: Source, given: SourceGiven) -> dict[str, Any]:
    """`url` and `file`, where there is one, take each other's place."""
    changed = update(before, given)
    places = [name for name in ("url", "file") if name in type(before).model_fields]
    if any(name in changed for name in places):
        changed |= {name: changed.get(name) for name in places}
    return changed


def _headers(
    before: Source | None, after: Source, given: dict[str, str | None] | None, seal: SecretBox
) -> dict[str, str] | None:
    """As they are to be stored. Those known are for their server only: another one must not get them by a new URL."""
    is_same = before is not None and _origin(before) == _origin(after)
    known = (before.headers or {}) if before is not None and is_same else {}
    if given is None:
        return known or None
    if given and after.url is None:
        raise InvalidResource("source.headers", "must be left out without a url")
    headers, missing = sealed_headers(given, known, seal)
    if missing:
        raise InvalidResource(
            f"source.headers.{missing[0]}", "has no value, and none is stored for this scheme, host and port"
        )
    return headers or None


def _origin(source: Source) -> tuple[str, str | None, int | None]:
    parts = urlsplit(source.url or "")
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


LIST_ENTRIES_MAX = 100_000
"""Entries that a list has itself."""
ENTRY_MAX = 254
"""Characters of an entry."""

MMDB: ListFormat = "mmdb"
PLAIN: ListFormat = "plain"
DOMAINS: ListKind = "domains"
_READERS: Final[dict[ListKind, Callable[[str], object]]] = {DOMAINS: read_domain, "networks": read_network}


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
        written = in_a_labels if changed.get("kind", before.kind) == DOMAINS else str
        changed |= {"entries": _each(written, body.entries), "source": None}
    if body.source is not None:
        changed |= {"entries": [], "source": _source(before.source, body.source, seal)}
    after = before.model_copy(update=changed)
    given = None if body.source is None else body.source.format
    after = after.model_copy(update={"source": _formatted(after, given)})
    if after.kind in _READERS:
        _each(_READERS[after.kind], after.entries)
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


def _each(read: Callable[[str], T], entries: list[str]) -> list[T]:
    """What `read` makes of each entry. Raises `InvalidResource` for the first that it refuses."""
    made = []
    for index, entry in enumerate(entries):
        try:
            made.append(read(entry))
        except ValueError as error:
            raise InvalidResource(f"entries[{index}]", str(error)) from error
    return made
