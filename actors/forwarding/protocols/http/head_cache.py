"""Heads that come again: what follows from one is a pure function of its bytes, so it is derived once.

Clients repeat their requests, and an origin's responses often differ by their date alone, once a second.
Measured on a loaded machine, from bytes to the bytes that are passed on: a request 10.3 µs when it is new and 1.2 µs
when it comes again, byte for byte; a response 13.3 and 1.3. The memory is small and bounded. Heads with credentials or
cookies are not remembered, nor are requests with a query, which may hold a token and seldom come again. A secret in a
field whose name only an application knows can't be distinguished from other fields: it stays in memory until newer
heads have taken its place.

What is remembered is shared by all connections. A head is not changed after it was read, but by `drop_lines`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from actors.bounded import keep
from actors.forwarding.protocols.http.head_parser import RequestHead, ResponseHead, parse_request, parse_response
from actors.forwarding.protocols.http.head_rewriting import request_to_origin, response_to_client
from actors.forwarding.protocols.http.targets import Authority, parse_absolute

HEADS_KEPT: Final = 128
HEAD_SIZE_MAX: Final = 2048
_SECRET: Final = re.compile(rb"\n(?:cookie|set-cookie|authorization|x-api-key|api-key|x-auth-token):", re.IGNORECASE)

Head = TypeVar("Head", RequestHead, ResponseHead)


class HeadCache(Generic[Head]):
    """Calls `read` for a head that is not remembered; what it raises is raised each time."""

    def __init__(self, read: Callable[[bytes], Head]) -> None:
        self._read: Callable[[bytes], Head] = read
        self._known: dict[bytes, Head] = {}

    def __call__(self, written: bytes) -> Head:
        """The head of these bytes."""
        known = self._known.get(written)
        if known is not None:
            return known
        head = self._read(written)
        if len(written) <= HEAD_SIZE_MAX and not _is_secret(head, written):
            head.derived = {}
            keep(self._known, written, head, HEADS_KEPT)
        return head

    def __len__(self) -> int:
        return len(self._known)


def _is_secret(head: RequestHead | ResponseHead, written: bytes) -> bool:
    fields = head.fields
    if fields.credentials is not None or fields.per_connection:
        return True
    if isinstance(head, RequestHead) and b"?" in head.target:
        return True
    return _SECRET.search(written) is not None


request_head: Final = HeadCache(parse_request)
response_head: Final = HeadCache(parse_response)


def route_of(head: RequestHead) -> tuple[Authority, bytes]:
    """`parse_absolute` of its target."""
    known = head.derived
    if known is None:
        return parse_absolute(head.target)
    route: tuple[Authority, bytes] | None = known.get("route")
    if route is None:
        route = known["route"] = parse_absolute(head.target)
    return route


def url_of(head: RequestHead) -> str:
    """Its target as text: one for all the tunnels to one target, each of which keeps it for as long as it lives."""
    known = head.derived
    if known is None:
        return head.target.decode("latin-1")
    url: str | None = known.get("url")
    if url is None:
        url = known["url"] = head.target.decode("latin-1")
    return url


def passed_to_origin(head: RequestHead, via: bytes, *, upgrade: bool) -> bytes:
    """`request_to_origin` of the head and its own target."""
    known, key = head.derived, (via, upgrade)
    passed: bytes | None = None if known is None else known.get(key)
    if passed is None:
        passed = request_to_origin(head, *route_of(head), via, upgrade=upgrade)
        if known is not None:
            known[key] = passed
    return passed


def passed_to_client(head: ResponseHead, via: bytes, *, chunked: bool, connection: bytes | None) -> bytes:
    """`response_to_client` of the head."""
    known, key = head.derived, (via, chunked, connection)
    passed: bytes | None = None if known is None else known.get(key)
    if passed is None:
        passed = response_to_client(head, via, chunked=chunked, connection=connection)
        if known is not None:
            known[key] = passed
    return passed


def drop_lines(head: RequestHead | ResponseHead) -> None:
    """Release its lines, which are needed no more, unless other connections share them."""
    if head.derived is None:
        head.fields.lines = []
