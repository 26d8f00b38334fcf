"""Kinds whose objects any number of proxies name, and what those have in common that are fetched from a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from api.engine.kind import ObjectKind, Resource
from api.engine.records import R
from api.engine.transfer import SecretValue, entry_of, without
from api.openapi.schemas.base import Moment, ResponseModel
from config.files.secret_box import SecretBox
from config.model.lists import DestinationList
from config.model.object_fields import READ_ONLY_FIELDS
from config.model.pools import Pool
from config.model.sources import S, Source
from config.model.webhooks import HEADER_PURPOSE

MOST = 1_000
FileOf = Callable[[DestinationList], str]
"""The name of the compiled file of a list, empty while there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedResource(Resource):
    """How the API has a kind that proxies name."""

    read: str = "proxy.read"
    write: str = "proxy.write"
    delete: str = "proxy.delete"
    paged: bool = True
    large_bodies: bool = True
    in_scopes: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamedKind(ObjectKind[R]):
    """A kind that proxies name. `spec` is what forwarding actors get, of a record and its revision; of a list with the
    name of its compiled file. It raises `SecretBoxError`."""

    spec: Callable[[R, int, SecretBox, FileOf], Any]
    most: int | None = MOST
    read_only: frozenset[str] = READ_ONLY_FIELDS
    by_name: bool = True
    events: bool = True


def entry_with_source(record: DestinationList | Pool, entries: str) -> dict[str, Any]:
    """An entry of an object that has its `entries` itself, or a source."""
    entry, source = entry_of(record), record.source
    if source is not None and source.headers is not None:
        entry["source"]["headers"] = {name: SecretValue(value) for name, value in source.headers.items()}
    return without(entry, "source" if source is None else entries)


def with_sealed_headers(entry: Any, sealed: Sequence[Any]) -> Any:
    """The entry with the values that came with the document for headers that have none; those have name and URL."""
    source = entry.source
    if source is None or source.headers is None:
        return entry
    known = (each.headers for each in sealed if (each.name, each.url) == (entry.name, source.url))
    sent: Mapping[str, str] = next(known, {})
    headers = {name: value or sent.get(name) for name, value in source.headers.items()}
    return entry.model_copy(update={"source": source.model_copy(update={"headers": headers})})


def usual_source(blank: Source, *left_out: str) -> dict[str, Any]:
    """What a source has without being given, and no headers."""
    return {**blank.model_dump(exclude={"url", "file", *left_out}), "headers": {}}


def openable_source(source: S | None, seal: SecretBox) -> tuple[S | None, list[str]]:
    """A source without the headers that can't be opened any more, and their fields."""
    if source is None or not source.headers:
        return source, []
    headers = {name: value for name, value in source.headers.items() if seal.opens(value, HEADER_PURPOSE)}
    fields = [f"source.headers.{name}" for name in source.headers if name not in headers]
    return source.model_copy(update={"headers": headers or None}), fields


class SkippedLine(ResponseModel):
    """A line of a source that is no entry."""

    line: int
    text: str
    reason: str


class ListStatus(ResponseModel):
    """The content of a list, or of a pool with a source: how many entries, when it was fetched and is fetched next.

    `last_error` says why the last fetch failed, null after one that did not. `skipped` counts the lines of the source
    that are no entries; the first few are examples.
    """

    entries: int
    fetched_at: Moment | None
    next_at: Moment | None
    last_error: str | None
    skipped: int
    skipped_examples: list[SkippedLine]


class Refreshing(ResponseModel):
    """A list, or the upstreams of a pool, are being fetched."""

    id: str
    refreshing: Literal[True]
