"""What lists and pools are fetched from: the fields of `source` that both have, and how a change of them is applied."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, StrictInt

from config.files.secret_box import SecretBox
from config.model.declaration import Given, Group, gives, update
from config.model.fields import Body, InvalidResource
from config.model.webhooks import MASK, SparseHeaders, Url, sealed_headers, sparse_headers

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
