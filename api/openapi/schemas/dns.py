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


class CachedNames(ResponseModel):
    """Cached results; `total` counts those of all names."""

    entries: list[CachedName]
    total: int


class DroppedNames(ResponseModel):
    """The number of results that the resolver has dropped."""

    dropped: int
