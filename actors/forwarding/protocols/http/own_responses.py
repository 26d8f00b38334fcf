"""Responses that an upstream proxy has made itself, other than those that it passes on from an origin.

What says so is its own entry in `Proxy-Status` with an error (RFC 9209), or a 502, 503 or 504 without `Via`: what a
proxy passes on has its entry there (RFC 9110 7.6.3). Many proxies send no `Via` at all; then a 503 of an origin is
taken for theirs.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

from actors.forwarding.protocols.http.head_parser import ResponseHead

_WITHOUT_VIA = frozenset((502, 503, 504))
_MEMBER = re.compile(rb'(?:[^",]|"(?:[^"\\]|\\.)*")+')
"""A member of a list of structured fields (RFC 9651 3.1)."""
_NAME = re.compile(rb'[ \t]*("(?:[^"\\]|\\.)*"|[^;, \t]+)')
_ERROR = re.compile(rb";[ \t]*error=([a-z_]+)")
_RECEIVED = re.compile(rb";[ \t]*received-status=")
WAIT_MAX = 86_400.0
_OF_TARGET = frozenset(
    (
        b"dns_error",
        b"dns_timeout",
        b"connection_refused",
        b"connection_timeout",
        b"connection_terminated",
        b"destination_not_found",
        b"destination_unavailable",
        b"destination_ip_unroutable",
        b"destination_ip_prohibited",
        b"http_response_timeout",
        b"http_response_incomplete",
        b"http_protocol_error",
    )
)
"""Error types of RFC 9209 that are about the next hop of the upstream."""


def is_own(response: ResponseHead) -> bool:
    """Whether the upstream that sends this response has made it."""
    if response.status < 400:
        return False
    if response.status == 407:
        return True
    via = response.fields.via
    if via is None and response.status in _WITHOUT_VIA:
        return True
    status = _field(response, b"proxy-status")
    return status is not None and _is_error_of(status, via)


def names_target(response: ResponseHead) -> bool:
    """Whether such a response says that the target is at fault."""
    last = _MEMBER.findall(_field(response, b"proxy-status") or b"")[-1:]
    error = _ERROR.search(last[0]) if last else None
    return error is not None and error[1] in _OF_TARGET


def retry_after(response: ResponseHead) -> float:
    """Seconds that `Retry-After` asks for (RFC 9110 10.2.3); 0 without it. A date counts from that of the response."""
    value = _field(response, b"retry-after")
    if value is None:
        return 0.0
    if value.isdigit():
        return min(float(value[:9]), WAIT_MAX)
    try:
        until = parsedate_to_datetime(value.decode("latin-1"))
        now = parsedate_to_datetime((_field(response, b"date") or b"").decode("latin-1"))
        return min(max((until - now).total_seconds(), 0.0), WAIT_MAX)
    except (ValueError, TypeError):
        return 0.0


def _is_error_of(status: bytes, via: bytes | None) -> bool:
    """Whether the last entry is an error that the proxy of the last `Via` has found; without one any proxy's."""
    last = _MEMBER.findall(status)[-1:]
    if not last or not _ERROR.search(last[0]) or _RECEIVED.search(last[0]):
        return False
    name = _NAME.match(last[0])
    if via is None or name is None:
        return via is None
    hop = via.rpartition(b",")[2].split()
    return name[1].strip(b'"') in hop[1:2]


def _field(response: ResponseHead, name: bytes) -> bytes | None:
    """The value of a field, of several lines joined."""
    found = [
        line.partition(b":")[2].strip()
        for line in response.fields.lines
        if line[: len(name) + 1].lower() == name + b":"
    ]
    return b", ".join(found) if found else None
