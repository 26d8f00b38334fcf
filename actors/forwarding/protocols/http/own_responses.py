"""Responses that an upstream proxy has made itself, other than those that it passes on from an origin.

What says so is its own entry in `Proxy-Status` with an error (RFC 9209), or a 502, 503 or 504 without `Via`: what a
proxy passes on has its entry there (RFC 9110 7.6.3). Many proxies send no `Via` at all; then a 503 of an origin is
taken for theirs. An origin can write all of this, too: so it only suggests something, and proves nothing.
"""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from actors.forwarding.protocols.http.head_parser import ResponseHead

_WITHOUT_VIA = frozenset((502, 503, 504))
STATUS_MAX = 1024
"""Bytes of a `Proxy-Status` that is read; a longer one says nothing."""
_DATE_MAX = 64
_PART = re.compile(
    rb'[ \t]*+([,;]?)[ \t]*+("(?:[^"\\]|\\.)*+"|[^",;= \t]++)(?:=("(?:[^"\\]|\\.)*+"|[^",; \t]++))?+[ \t]*+'
)
"""What follows in a list of structured fields (RFC 9651 3.1): `,` and a member, or `;` and a parameter of it."""
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
    entries = proxy_status(response)
    return bool(entries) and _is_error_of(entries[-1], via)


def names_target(response: ResponseHead) -> bool:
    """Whether such a response says that the target is at fault."""
    entries = proxy_status(response)
    return bool(entries) and entries[-1].error in _OF_TARGET


def retry_after(response: ResponseHead) -> float:
    """Seconds that `Retry-After` asks for (RFC 9110 10.2.3); 0 without it. A date counts from that of the response."""
    value = _last(response, b"retry-after")
    if value.isdigit():
        return min(float(value[:9]), WAIT_MAX)
    try:
        waits = (_date(value) - _date(_last(response, b"date"))).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(waits, 0.0), WAIT_MAX)


class Entry(NamedTuple):
    """What one proxy says in `Proxy-Status`. `error` is its type, empty without one; `received` a status came."""

    name: bytes
    error: bytes = b""
    received: bool = False


def proxy_status(response: ResponseHead) -> list[Entry]:
    """The entries in the last line of `Proxy-Status`, the nearest proxy last; none if that isn't well-formed."""
    line = _last(response, b"proxy-status")
    entries: list[Entry] = []
    at, end = 0, len(line)
    while at < end <= STATUS_MAX:
        part = _PART.match(line, at)
        if part is None or bool(part[1]) is not bool(entries):
            return []
        if part[1] != b";":
            entries.append(Entry(part[2].strip(b'"')))
        elif part[2] == b"error":
            entries[-1] = entries[-1]._replace(error=part[3] or b"")
        elif part[2] == b"received-status":
            entries[-1] = entries[-1]._replace(received=True)
        at = part.end()
    return entries


def _is_error_of(entry: Entry, via: bytes | None) -> bool:
    """Whether it is an error that the proxy of the last `Via` has found; without one any proxy's."""
    if not entry.error or entry.received:
        return False
    return via is None or entry.name in via.rpartition(b",")[2].split()[1:2]


def _last(response: ResponseHead, name: bytes) -> bytes:
    """The value of the last line of a field; empty without one."""
    start = name + b":"
    for line in reversed(response.fields.lines):
        if line[: len(start)].lower() == start:
            return line[len(start) :].strip()
    return b""


def _date(value: bytes) -> datetime:
    if len(value) > _DATE_MAX:
        raise ValueError(value)
    return parsedate_to_datetime(value.decode("latin-1"))
