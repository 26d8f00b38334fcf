"""Header fields that proxies and rules set or remove: names and values in requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictStr, WithJsonSchema

from config.model import json_patterns
from config.model.declaration import Given, Group
from config.model.fields import InvalidProxy
from config.net.names import OWN_FIELDS, canonical_name

HEADERS_MAX = 50
HEADER_VALUE_MAX = 4096
HEADERS_SIZE_MAX = 8192
"""Characters of names and values that are set: origins take heads of 8 to 16 KiB."""

_TOKEN = re.compile(json_patterns.FIELD_NAME, re.ASCII)
_VALUE = re.compile(json_patterns.FIELD_VALUE, re.ASCII)
_PER_CONNECTION = re.compile(r"(?:ntlm|negotiate|nego2|kerberos)\b", re.IGNORECASE)
"""Schemes that authenticate the connection (RFC 4559): the next request on it would be of that user, too."""


def _name(text: str) -> str:
    if _TOKEN.fullmatch(text) is None:
        raise ValueError("must be the name of a header field")
    if canonical_name(text) in OWN_FIELDS:
        raise ValueError(f"must not be {text}: the proxy sets it itself")
    return text


def _value(text: str) -> str:
    if _VALUE.fullmatch(text) is None:
        raise ValueError("must be visible characters of ASCII, with blanks inside at most")
    return text


def _distinct(names: Any) -> Any:
    seen: dict[str, str] = {}
    for name in names:
        if seen.setdefault(canonical_name(name), name) is not name:
            raise ValueError(f"must not name {name} twice" + _as_written(name, seen[canonical_name(name)]))
    return names


def _as_written(name: str, before: str) -> str:
    return "" if name == before else f": some servers take {before} for the same"


def _bounded(given: dict[str, str]) -> dict[str, str]:
    if sum(len(name) + len(value) for name, value in given.items()) > HEADERS_SIZE_MAX:
        raise ValueError(f"must have at most {HEADERS_SIZE_MAX} characters in names and values")
    for name, value in given.items():
        if canonical_name(name) == "authorization" and _PER_CONNECTION.match(value):
            raise ValueError(f"must not set {name} to a scheme that authenticates the whole connection")
    return given


def set_and_removed(to_set: Mapping[str, str], remove: Iterable[str]) -> tuple[int, str] | None:
    """The first of `remove` that `to_set` has, too, and why that is refused; None: there is none."""
    named = {canonical_name(name) for name in to_set}
    twice = next(((index, name) for index, name in enumerate(remove) if canonical_name(name) in named), None)
    return twice and (twice[0], f"is {twice[1]}, which `set` has, too: it replaces all that there are")


def _any_case(name: str) -> str:
    return "".join(f"[{each.upper()}{each}]" if each.isalpha() else each for each in name).replace("-", "[-_]")


_NAME_SCHEMA = {
    "pattern": json_patterns.FIELD_NAME,
    "not": {"pattern": f"^(?:{'|'.join(map(_any_case, sorted(OWN_FIELDS)))})$"},
}
_VALUE_SCHEMA = json_patterns.text(json_patterns.FIELD_VALUE, 1, HEADER_VALUE_MAX)
HeaderName = Annotated[StrictStr, AfterValidator(_name)]
HeaderValue = Annotated[StrictStr, Field(min_length=1, max_length=HEADER_VALUE_MAX), AfterValidator(_value)]
HeadersToSet = Annotated[
    dict[HeaderName, HeaderValue],
    Field(max_length=HEADERS_MAX),
    AfterValidator(_distinct),
    AfterValidator(_bounded),
    json_patterns.mapping(_NAME_SCHEMA, _VALUE_SCHEMA, HEADERS_MAX),
]
HeadersToRemove = Annotated[
    list[HeaderName],
    Field(max_length=HEADERS_MAX),
    AfterValidator(_distinct),
    WithJsonSchema({"type": "array", "items": {"type": "string", **_NAME_SCHEMA}, "maxItems": HEADERS_MAX}),
]


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
