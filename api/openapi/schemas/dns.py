"""Views of the resolver's cache."""

from __future__ import annotations

from typing import Literal

from api.openapi.schemas.base import ResponseModel


class CachedName(ResponseModel):
    """A cached result. `servers` are those that were asked, none for those of the system; `ttl` is seconds from now."""

    name: str
    type: Literal["A", "AAAA"]
    status: Literal["found", "no_data", "no_name", "failed", "timed_out"]
    addresses: list[str]
    ttl: float
    servers: list[str]
    detail: str


class NameServerState(ResponseModel):
    """A name server since the resolver's start: `failures` are queries without a usable response.

    `up` is false while it has not responded lately; `latency` is the mean time of a response, milliseconds.
    """

    name: str
    up: bool
    queries: int
    failures: int
    latency: float | None


class ResolverState(ResponseModel):
    """Counters of the resolver since its start.

    `requests` for names, `hits` of them from the cache, `failures` without an address; lookups that wait now.
    """

    requests: int
    hits: int
    failures: int
    waiting: int
    servers: list[NameServerState]


class CachedNames(ResponseModel):
    """Cached results; `total` counts those of all names."""

    entries: list[CachedName]
    total: int
    resolver: ResolverState


class DroppedNames(ResponseModel):
    """The number of results that the resolver has dropped."""

    dropped: int
