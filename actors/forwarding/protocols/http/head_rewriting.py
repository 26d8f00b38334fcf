"""Heads as they are passed on: what a proxy takes out, replaces and adds (RFC 9110 7.6, RFC 9112 3.2.2)."""

from __future__ import annotations

from typing import Final

from actors.forwarding.protocols.http.head_parser import RequestHead, ResponseHead
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.protocols.http.via import extended_via

_CHUNKED: Final = b"Transfer-Encoding: chunked"
_END: Final = b"\r\n\r\n"

PROXY_SUPPORT: Final = b"Proxy-Support"
"""The option of `Connection` for a field of this name, which says that the connection behind the client's belongs to it
alone (RFC 4559 6): clients don't take up NTLM or Negotiate through a proxy without it."""


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
