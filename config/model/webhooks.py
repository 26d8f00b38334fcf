"""Webhooks: what is accepted as one, what is stored of it.

The signing secret is one of Standard Webhooks: `whsec_` and base64 of random bytes.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, Field, StrictBool, StrictStr, WithJsonSchema

from config.files.secret_box import SealedFor, SecretBox
from config.model import json_patterns
from config.model.choices import MASK
from config.model.declaration import INTERNAL, SECRET, Given, Instant, gives
from config.model.events import EVENT_DATA
from config.model.fields import Body, Name, Text, example
from config.model.subscriptions import EVERYTHING

EVENTS = tuple(EVENT_DATA)
PATTERNS = (*EVENTS, *dict.fromkeys(f"{name.partition('.')[0]}.*" for name in EVENTS if "." in name), EVERYTHING)
"""Everything that can be subscribed to."""

LONGEST_URL = 2048
MAX_HEADERS = 50
LONGEST_HEADER = 4096
SECRET_BYTES = 32
SECRET_PREFIX = "whsec_"  # noqa: S105 - how every such secret begins
SECRET_PURPOSE = SealedFor.WEBHOOK
HEADER_PURPOSE = SealedFor.HEADER
"""Those of sources of lists, too."""

_TOKEN = re.compile(json_patterns.FIELD_NAME)
_VALUE = re.compile(r"^[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?$")
_RESERVED = ("webhook-", "content-", "proxy-")
_OURS = frozenset(
    ("host", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "expect", "date")
)


def new_secret() -> str:
    """A random secret."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode("ascii")


def absolute_url(text: str) -> str:
    """`text`, an http or https URL without credentials and fragment. Raises `ValueError`."""
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("must be an absolute http or https URL in ASCII")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise ValueError("must be an absolute http or https URL")
    _refuse_extras(parts)
    return text


def masked_url(text: str) -> str:
    """`text` without path and query, which hold a credential at many receivers."""
    parts = urlsplit(text)
    authority = parts.netloc.rpartition("@")[2]
    secret = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
    return f"{parts.scheme}://{authority}/{MASK}" if secret else text


def _refuse_extras(parts: SplitResult) -> None:
    if "@" in parts.netloc:
        raise ValueError("must not hold credentials")
    if parts.fragment:
        raise ValueError("must not have a fragment")


def _events(names: list[str]) -> list[str]:
    for name in names:
        if name not in PATTERNS:
            raise ValueError(f"{name!r} is not an event; allowed: {', '.join(PATTERNS)}")
    return list(dict.fromkeys(names))


def _headers(headers: dict[str, str]) -> dict[str, str]:
    seen: set[str] = set()
    for name, value in headers.items():
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"{name!r} is not a header name")
        if lower.startswith(_RESERVED) or lower in _OURS:
            raise ValueError(f"{name!r} is set by the sender and can't be given")
        if lower in seen:
            raise ValueError(f"{name!r} is given twice")
        if len(value) > LONGEST_HEADER or not _VALUE.fullmatch(value):
            raise ValueError(f"the value of {name!r} must be 1 to {LONGEST_HEADER} visible ASCII characters")
        seen.add(lower)
    return headers


def _sparse_headers(headers: dict[str, str | None]) -> dict[str, str | None]:
    _headers({name: value or "kept" for name, value in headers.items()})
    return {name: None if value in ("", MASK) else value for name, value in headers.items()}


def sealed_headers(
    given: Mapping[str, str | None], known: Mapping[str, str], seal: SecretBox
) -> tuple[dict[str, str], list[str]]:
    """The headers as they are to be stored, and the names of those without a value that `known` doesn't have either.

    `known` are those that are stored. Raises `SecretBoxError`.
    """
    headers, missing = {}, []
    for name, value in given.items():
        before = known.get(name)
        if value is not None:
            headers[name] = seal.reseal(before, value, HEADER_PURPOSE)
        elif before is not None:
            headers[name] = before
        else:
            missing.append(name)
    return headers, missing


def opened_headers(headers: Mapping[str, str], seal: SecretBox) -> dict[str, str]:
    """Stored headers in the clear. Raises `SecretBoxError`."""
    return {name: seal.open(value, HEADER_PURPOSE) for name, value in headers.items()}


def _secret(text: str) -> str:
    try:
        size = len(base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True))
    except binascii.Error:
        size = 0
    if not text.startswith(SECRET_PREFIX) or not 24 <= size <= 64:
        raise ValueError(f"must be {SECRET_PREFIX} and base64 of 24 to 64 bytes")
    return text


_EVENTS_SCHEMA = {"type": "array", "items": {"type": "string", "enum": list(PATTERNS)}, "minItems": 1, "maxItems": 100}
_HEADER_NAMES = {"pattern": json_patterns.FIELD_NAME}
_HEADER_VALUE = json_patterns.text(_VALUE.pattern, highest=LONGEST_HEADER)
_SPARSE_VALUE = json_patterns.any_of(json_patterns.NULL, json_patterns.EMPTY, _HEADER_VALUE)


def sparse_headers(most: int) -> WithJsonSchema:
    """How the description of the API has so many headers, of which some keep the value that they have."""
    return json_patterns.mapping(_HEADER_NAMES, _SPARSE_VALUE, most)


Url = Annotated[StrictStr, Text(1, LONGEST_URL, absolute_url, pattern=json_patterns.WEBHOOK_URL)]
Events = Annotated[
    list[StrictStr], Field(min_length=1, max_length=100), AfterValidator(_events), WithJsonSchema(_EVENTS_SCHEMA)
]
Headers = Annotated[
    dict[StrictStr, StrictStr],
    Field(max_length=MAX_HEADERS),
    AfterValidator(_headers),
    json_patterns.mapping(_HEADER_NAMES, _HEADER_VALUE, MAX_HEADERS),
]
SparseHeaders = Annotated[
    dict[StrictStr, StrictStr | None],
    Field(max_length=MAX_HEADERS),
    AfterValidator(_sparse_headers),
    sparse_headers(MAX_HEADERS),
]
"""Headers, of which those without a value, or with `MASK`, keep the one that they have."""
_64 = "[A-Za-z0-9+/]"
_SECRET_PATTERN = (
    rf"^{SECRET_PREFIX}(?:(?:{_64}{{4}}){{8,20}}(?:{_64}{{2}}==|{_64}{{3}}=)?|(?:{_64}{{4}}){{21}}(?:{_64}{{2}}==)?)$"
)
"""Base64 of 24 to 64 bytes: groups of four, and one or two bytes in a last group that is filled up."""

Secret = Annotated[StrictStr, Text(0, 100, _secret, pattern=_SECRET_PATTERN)]
"""A signing secret, as Standard Webhooks writes them."""


class PreviousSecret(BaseModel):
    """A secret that is signed with beside the current one until `until` (Unix seconds)."""

    sealed: str = Field(repr=False)
    until: float


class WebhookRecord(BaseModel):
    """A document of the collection `webhooks`. Secrets and the values of headers are sealed."""

    id: str
    name: Annotated[str, Given(Name)]
    url: Annotated[str, Given(Url)]
    events: Annotated[list[str], Given(Events)]
    headers: dict[str, str] = Field(repr=False)
    enabled: Annotated[bool, Given(StrictBool)]
    disabled_reason: str | None = None
    secret_sealed: Annotated[str, SECRET] = Field(repr=False)
    previous_secrets: Annotated[list[PreviousSecret], INTERNAL] = Field(default_factory=list)
    created_at: Instant
    updated_at: Instant


@gives(WebhookRecord)
class WebhookUpdate(Body):
    """The body of PUT and PATCH: any part. `events` and `headers` are replaced as a whole."""

    model_config = example({"events": ["*"], "enabled": True})

    headers: Headers | None = Field(None, repr=False)


class WebhookCreate(WebhookUpdate):
    """The body of a create."""

    model_config = example(
        {
            "name": "alerts",
            "url": "https://hooks.example.com/proxyfleet",
            "events": ["proxy.*", "high_error_rate"],
            "headers": {"Authorization": "Bearer 0123456789abcdef"},
            "enabled": True,
        }
    )

    name: Name
    url: Url
    events: Events
    enabled: StrictBool = True


READ_ONLY_FIELDS = frozenset(
    {"id", "secret", "disabled_reason", "previous_secret_until", "status", "created_at", "updated_at"}
)
