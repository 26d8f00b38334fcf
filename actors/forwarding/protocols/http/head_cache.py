"""Heads as they are passed on, with what a proxy takes out, replaces and adds (RFC 9110 7.6, RFC 9112 3.2.2); and heads
that come again.

What follows from one is a pure function of its bytes, so it is derived once.

Clients repeat their requests, and an origin's responses often differ by their date alone, once a second. Measured on a
loaded machine, from bytes to the bytes that are passed on: a request 10.3 µs when it is new and 1.2 µs when it comes
again, byte for byte; a response 13.3 and 1.3. The memory is small and bounded. Heads with credentials or cookies are
not remembered, nor are requests with a query, which may hold a token and seldom come again. A secret in a field whose
name only an application knows can't be distinguished from other fields: it stays in memory until newer heads have taken
its place.

What is remembered is shared by all connections. A head is not changed after it was read, but by `drop_lines`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from actors.bounded import keep
from actors.forwarding.protocols.http.head_parser import RequestHead, ResponseHead, parse_request, parse_response
from actors.forwarding.protocols.http.header_changes import extended_via
from actors.forwarding.protocols.http.targets import Authority, parse_absolute

_CHUNKED: Final = b"Transfer-Encoding: chunked"
_END: Final = b"\r\n\r\n"

PROXY_SUPPORT: Final = b"Proxy-Support"
"""The option of `Connection` for a field of this name, which says that the connection behind the client's belongs
to it alone (RFC 4559 6): clients don't take up NTLM or Negotiate through a proxy without it.
"""


def request_to_origin(head: RequestHead, target: Authority, path: bytes, via: bytes, *, upgrade: bool) -> bytes:
    """The head that the origin gets: origin-form, the target's authority as Host, `via` the name of this proxy or
    empty."""
    fields = head.fields
    if not path:
        path = b"*" if head.method == b"OPTIONS" else b"/"
    parts = [b"%b %b HTTP/1.1\r\nHost: %b" % (head.method, path, target.text), *fields.lines]
    if fields.length is not None:
        parts.append(b"Content-Length: %d" % fields.length)
    elif fields.chunked:
        parts.append(_CHUNKED)
    if fields.max_forwards:  # 0 limits OPTIONS and TRACE, which don't get here with it, and no other method
        parts.append(b"Max-Forwards: %d" % (fields.max_forwards - 1))
    _add_via(parts, head.minor, fields.via, via)
    if upgrade and fields.upgrade is not None:
        parts.append(b"Upgrade: %b\r\nConnection: upgrade" % fields.upgrade)
    return b"\r\n".join(parts) + _END


def request_to_upstream(
    head: RequestHead, target: Authority, path: bytes, via: bytes, *, upgrade: bool, hop: bytes
) -> bytes:
    """The head that an upstream proxy gets: absolute-form (RFC 9112 3.2.2) and the field lines `hop`, with their
    CRLF."""
    _line, _, fields = request_to_origin(head, target, path, via, upgrade=upgrade).partition(b"\r\n")
    if not path and head.method != b"OPTIONS":  # RFC 9112 3.2.4: OPTIONS without a path is `*` at the origin
        path = b"/"
    return b"%b http://%b%b HTTP/1.1\r\n%b%b" % (head.method, target.text, path, hop, fields)


def response_to_client(head: ResponseHead, via: bytes, *, chunked: bool, connection: bytes | None) -> bytes:
    """The head that the client gets. `connection` is the value of that field, None to leave it out."""
    fields = head.fields
    parts = [b"HTTP/1.1 %d %b" % (head.status, head.phrase), *fields.lines]
    # RFC 9112 6.1, RFC 9110 8.6: 1xx and 204 say nothing of a body, whatever the origin wrote. 304 may name the coding
    # of a body that it doesn't have, but there are clients that wait for it.
    bodiless = head.status < 200 or head.status == 204
    if chunked and not bodiless and head.status != 304:
        parts.append(_CHUNKED)
    elif fields.length is not None and not (fields.chunked or bodiless):
        parts.append(b"Content-Length: %d" % fields.length)
    _add_via(parts, head.minor, fields.via, via)
    if connection is not None:
        parts.append(b"Connection: " + connection)
        if fields.upgrade is not None and connection == b"upgrade":
            parts.append(b"Upgrade: " + fields.upgrade)
        elif connection == PROXY_SUPPORT:
            parts.append(PROXY_SUPPORT + b": Session-Based-Authentication")
    return b"\r\n".join(parts) + _END


def _add_via(parts: list[bytes], minor: int, before: bytes | None, name: bytes) -> None:
    """`Via` of a message that came as HTTP/1.`minor`."""
    value = extended_via(before, minor, name)
    if value:
        parts.append(b"Via: " + value)


CACHED_HEADS: Final = 128
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
            keep(self._known, written, head, CACHED_HEADS)
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
