"""What kinds have in common: those that proxies name, those that are fetched from a source, those with upstreams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from api.engine.kind import ObjectKind, Resource
from api.engine.records import R
from api.engine.responses import Moment, ResponseModel
from api.engine.transfer import SecretValue, entry_of, password, without
from api.objects.proxies.proxy_responses import UpstreamAuthView, UpstreamView
from config.files.secret_box import SecretBox
from config.model.fields import NULLABLE, InvalidResource
from config.model.object_fields import READ_ONLY_FIELDS
from config.model.proxies import ProxyRecord
from config.model.shared_objects.lists import DestinationList, S, Source
from config.model.shared_objects.pools import Pool
from config.model.shared_objects.upstreams import PURPOSE, Password, ProxyUpstream, U, UpstreamAuth, UpstreamInput
from config.model.webhooks import HEADER_PURPOSE

MOST = 1_000
W = TypeVar("W", ProxyRecord, Pool)
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


class UsedBy(ResponseModel):
    """How many proxies, plans, accounts, credentials, policies and settings name an object."""

    total: int


class UserOfObject(ResponseModel):
    """One of them. A setting has its key as `id`."""

    kind: Literal["proxy", "plan", "account", "credential", "policy", "pool", "list", "setting"]
    id: str
    name: str


class UsedByThese(UsedBy):
    """Those that name an object, and keep it from being deleted: how many, and the first hundred."""

    first: list[UserOfObject]


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


# --- upstreams of proxies and pools as entries of a document have them ----------------------------------------------


class EntryUpstreamAuth(UpstreamAuth):
    """`auth` of an upstream of an entry."""

    password: Annotated[Password | None, NULLABLE] = Field(None, repr=False)


class EntryUpstream(UpstreamInput):
    """An upstream of an entry."""

    auth: EntryUpstreamAuth | None = None

    @property
    def hides_password(self) -> bool:
        """Whether the password is null: it exists, but is not in the document."""
        return self.auth is not None and "password" in self.auth.model_fields_set and self.auth.password is None


class ExportedUpstreamAuth(UpstreamAuthView):
    """The credentials for an upstream."""

    password: None = None


class ExportedUpstream(UpstreamView):
    """An upstream of an exported proxy."""

    auth: ExportedUpstreamAuth | None = None


def with_password(form: dict[str, Any], upstream: ProxyUpstream) -> dict[str, Any]:
    """The entry of an upstream, from its view."""
    if "auth" in form:
        form["auth"] |= password(upstream.password)
    return form


def without_lost_password(upstream: U, seal: SecretBox) -> U:
    """The upstream without a password that can't be opened any more."""
    if upstream.password is None or seal.opens(upstream.password, PURPOSE):
        return upstream
    return upstream.model_copy(update={"password": None})


def without_lost_passwords(upstreams: Sequence[U], seal: SecretBox) -> tuple[list[U], list[str]]:
    """All of them, and the fields of the passwords that are lost."""
    kept = [without_lost_password(each, seal) for each in upstreams]
    return kept, [f"upstreams[{index}].auth.password" for index, each in enumerate(kept) if each != upstreams[index]]


def with_sealed_passwords(record: W, given: Sequence[EntryUpstream], sealed: Sequence[Any], seal: SecretBox) -> W:
    """A proxy or a pool with the passwords that came with the document for the upstreams given without one.

    Raises `InvalidResource` for an entry that hides a password which nothing is known of.
    """
    passwords: dict[Any, str] = {(each.protocol, each.host, each.port, each.username): each.password for each in sealed}
    upstreams = list(record.upstreams)
    for index, (entry, upstream) in enumerate(zip(given, record.upstreams, strict=True)):
        password = None if entry.auth is not None and entry.auth.password else passwords.get(upstream.identity)
        if password is not None:
            sealed_one = seal.reseal(upstream.password, password, PURPOSE)
            upstreams[index] = upstream.model_copy(update={"password": sealed_one})
        if entry.hides_password and upstreams[index].password is None:
            raise InvalidResource(f"upstreams[{index}].auth.password", "is null, and no such password is known here")
    return record.model_copy(update={"upstreams": upstreams})
