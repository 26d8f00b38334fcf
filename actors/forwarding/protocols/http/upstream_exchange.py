"""A request in absolute-form and the upstream proxies that it is sent to: whether another one may have it.

Only what may be repeated is sent again: nothing with a body, which is gone then, and after anything but a 407 only
idempotent methods (RFC 9110 9.2.2), since the upstream may have passed the request on.

Responses that an upstream proxy has made itself, other than those that it passes on from an origin. What says so is its
own entry in `Proxy-Status` with an error (RFC 9209), or a 502, 503 or 504 without `Via`: what a proxy passes on has its
entry there (RFC 9110 7.6.3). Many proxies send no `Via` at all; then a 503 of an origin is taken for theirs. An origin
can write all of this, too: so it only suggests something, and proves nothing.
"""

from __future__ import annotations

import re
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from actors.forwarding.protocols.commands import Again, Command, UpstreamRefused, UpstreamResponded
from actors.forwarding.protocols.failures import UPSTREAM_REFUSES_US, AskAnotherUpstream, Refused, UpstreamRefusesUs
from actors.forwarding.protocols.http.head_parser import RequestHead, ResponseHead

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


class StatusEntry(NamedTuple):
    """What one proxy says in `Proxy-Status`. `error` is its type, empty without one; `received` a status came."""

    name: bytes
    error: bytes = b""
    received: bool = False


def proxy_status(response: ResponseHead) -> list[StatusEntry]:
    """The entries in the last line of `Proxy-Status`, the nearest proxy last; none if that isn't well-formed."""
    line = _last(response, b"proxy-status")
    entries: list[StatusEntry] = []
    at, end = 0, len(line)
    while at < end <= STATUS_MAX:
        part = _PART.match(line, at)
        if part is None or bool(part[1]) is not bool(entries):
            return []
        if part[1] != b";":
            entries.append(StatusEntry(part[2].strip(b'"')))
        elif part[2] == b"error":
            entries[-1] = entries[-1]._replace(error=part[3] or b"")
        elif part[2] == b"received-status":
            entries[-1] = entries[-1]._replace(received=True)
        at = part.end()
    return entries


def _is_error_of(entry: StatusEntry, via: bytes | None) -> bool:
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


UPSTREAMS_TRIED: Final = 3
"""So many upstreams may refuse our credentials for one request until its client gets a 502."""

IDEMPOTENT: Final = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))
"""Methods of requests that may be sent twice."""


class UpstreamExchange:
    """One request. `in_use`: it is at an upstream in absolute-form now."""

    __slots__ = ("_again", "_head", "_refused", "in_use")

    def __init__(self, head: RequestHead) -> None:
        self._head = head
        self._again: Again | None = None
        self._refused = 0
        self.in_use = False

    def sent(self, in_use: bool, again: Again | None) -> None:
        """The head is sent, once more perhaps. `again` as for `Session.opened`."""
        self.in_use, self._again = in_use, again

    def may_retry(self, interim: bool) -> bool:
        """An upstream has rejected our credentials: may another one have it? `interim`: the client has had a 1xx."""
        self._refused += 1
        return self._refused < UPSTREAMS_TRIED and self._is_repeatable(407, interim)

    def check(self, response: ResponseHead, interim: bool, out: list[Command]) -> None:
        """Look at a response with an error.

        Raises `UpstreamRefusesUs` and `AskAnotherUpstream`, after which another upstream may be asked, and `Refused`.
        """
        status, again = response.status, self._again
        if again is None:
            if status == 407:
                out.append(UpstreamRefused())
                raise UpstreamRefusesUs(UPSTREAM_REFUSES_US)
            return
        if not is_own(response):
            return
        if status == 407:
            out.append(UpstreamRefused())
        else:
            out.append(UpstreamResponded(status, names_target(response)))
        if self._is_repeatable(status, interim) and again(status):
            raise AskAnotherUpstream
        if status == 407:
            raise Refused(UPSTREAM_REFUSES_US)

    def lost(self, interim: bool, out: list[Command]) -> bool:
        """The connection has ended without a response: whether another upstream is asked."""
        if not self.in_use or self._again is None or not self._is_repeatable(0, interim) or not self._again(0):
            return False
        out.append(UpstreamResponded(0))
        return True

    def _is_repeatable(self, status: int, interim: bool) -> bool:
        fields = self._head.fields
        if fields.chunked or fields.length or interim:
            return False
        return status == 407 or (self._head.method in IDEMPOTENT and not fields.expects)

    def __repr__(self) -> str:
        return f"<UpstreamExchange, in use: {self.in_use}, refused {self._refused} times>"
