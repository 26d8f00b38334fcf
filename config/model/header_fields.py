"""Header fields that an operator has proxies set or remove: names and values in requests."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictStr, WithJsonSchema

from config.model import json_patterns

HEADERS_MAX = 50
HEADER_VALUE_MAX = 4096
HEADER_NAME_MAX = 128

_TOKEN = re.compile(json_patterns.FIELD_NAME, re.ASCII)
_VALUE = re.compile(json_patterns.FIELD_VALUE, re.ASCII)
_FRAMING = (
    "connection content-length expect host http2-settings keep-alive max-forwards proxy-authenticate "
    "proxy-authentication-info proxy-authorization proxy-connection te trailer transfer-encoding upgrade via"
)
OWN_FIELDS = frozenset(_FRAMING.split())
"""Fields by which hops understand each other: a proxy sets them itself."""


def _name(text: str) -> str:
    if _TOKEN.fullmatch(text) is None:
        raise ValueError("must be the name of a header field")
    if text.lower() in OWN_FIELDS:
        raise ValueError(f"must not be {text}: the proxy sets it itself")
    return text


def _value(text: str) -> str:
    if _VALUE.fullmatch(text) is None:
        raise ValueError("must be visible characters of ASCII, with blanks inside at most")
    return text


def _distinct(names: Any) -> Any:
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            raise ValueError(f"must not name {name} twice")
    return names


def _any_case(name: str) -> str:
    return "".join(f"[{each.upper()}{each}]" if each.isalpha() else each for each in name)


_NAME_SCHEMA = {
    "pattern": json_patterns.FIELD_NAME,
    "not": {"pattern": f"^(?:{'|'.join(map(_any_case, sorted(OWN_FIELDS)))})$"},
}
HeaderName = Annotated[StrictStr, AfterValidator(_name)]
HeaderValue = Annotated[StrictStr, Field(min_length=1, max_length=HEADER_VALUE_MAX), AfterValidator(_value)]
HeadersToSet = Annotated[
    dict[HeaderName, HeaderValue],
    Field(min_length=1, max_length=HEADERS_MAX),
    AfterValidator(_distinct),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": _NAME_SCHEMA,
            "additionalProperties": {
                "type": "string",
                "minLength": 1,
                "maxLength": HEADER_VALUE_MAX,
                "pattern": json_patterns.FIELD_VALUE,
            },
            "minProperties": 1,
            "maxProperties": HEADERS_MAX,
        }
    ),
]
HeadersToRemove = Annotated[
    list[HeaderName],
    Field(min_length=1, max_length=HEADERS_MAX),
    AfterValidator(_distinct),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "string", **_NAME_SCHEMA},
            "minItems": 1,
            "maxItems": HEADERS_MAX,
        }
    ),
]
