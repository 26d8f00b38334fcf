"""Which header fields a proxy adds, sets and removes: `headers` of a proxy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from config.model.declaration import Given, Group
from config.model.fields import InvalidProxy
from config.model.header_fields import HeadersToRemove, HeadersToSet, set_and_removed
from config.net.field_names import canonical_name

Via = Literal["pseudonym", "on", "off"]
Forwarded = Literal["off", "x-forwarded-for", "rfc7239"]
ADDED_FIELDS: dict[str, str] = {"x-forwarded-for": "x-forwarded-for", "rfc7239": "forwarded"}
"""The field that each mode of `forwarded` adds."""


class ProxyHeaders(Group):
    """Which header fields the proxy adds, sets and removes in plain HTTP.

    `via` is its entry in `Via`, `forwarded` the field that tells the client's address; `set` and `remove` are of
    requests.
    """

    via: Annotated[Via, Given(Via)] = "pseudonym"
    forwarded: Annotated[Forwarded, Given(Forwarded)] = "off"
    set: Annotated[dict[str, str], Given(HeadersToSet)] = Field(default_factory=dict)
    remove: Annotated[list[str], Given(HeadersToRemove)] = Field(default_factory=list)


def check_headers(headers: ProxyHeaders) -> None:
    """Raises `InvalidProxy` where two of its parts contradict each other."""
    twice = set_and_removed(headers.set, headers.remove)
    if twice is not None:
        raise InvalidProxy(f"headers.remove[{twice[0]}]", twice[1])
    for name in headers.set:
        if canonical_name(name) == ADDED_FIELDS.get(headers.forwarded):
            raise InvalidProxy(f"headers.set.{name}", f"must not be what headers.forwarded adds: {headers.forwarded}")
