"""The replies of SOCKS: one table from failures to reply codes (RFC 1928 section 6; SOCKS4).

Addresses and datagram heads of SOCKS5 clients (RFC 1928 sections 4 to 7):

```
+------+----------+----------+        +-----+------+------+----------+----------+------+
| ATYP |   ADDR   |   PORT   |        | RSV | FRAG | ATYP |   ADDR   |   PORT   | DATA |
+------+----------+----------+        +-----+------+------+----------+----------+------+
|  1   | variable |    2     |        |  2  |  1   |  1   | variable |    2     | rest |
+------+----------+----------+        +-----+------+------+----------+----------+------+
an address: 4 octets, a counted       a datagram between client and proxy
name, or 16 octets
```
"""

from __future__ import annotations

from typing import NamedTuple

from actors.forwarding.protocols.failures import NO_UPSTREAM_MATCHES, NOT_THROUGH_UPSTREAMS, Failure, Refused
from actors.forwarding.protocols.http.targets import Authority, authority_of_literal, authority_of_name
from actors.net.socks_wire import IPV4, IPV6, NAME, UNSPECIFIED, Endpoint, pack_address

UNKNOWN_ADDRESS_TYPE = Failure(400, "http_request_error", "the address type is not supported", close=True)


class _WireAddress(NamedTuple):
    """An address as it is written: of which kind, its octets, its port, and the index behind it."""

    kind: int
    host: bytes
    port: int
    end: int

    def authority(self) -> Authority:
        return (authority_of_name if self.kind == NAME else authority_of_literal)(self.host, self.port)


def read_address(data: bytes | bytearray, at: int) -> tuple[Authority, int] | None:
    """The address that begins at `at` and the index behind it; None when not all of it is there.

    The port may be 0. Raises `Refused`: with `UNKNOWN_ADDRESS_TYPE`, or 400 for a name that isn't one.
    """
    address = _split_address(data, at)
    return None if address is None else (address.authority(), address.end)


def read_source(data: bytes | bytearray, at: int) -> tuple[Authority, int] | None:
    """As `read_address`, where a client says from where its datagrams will come; the unspecified host for what is no
    name.

    Only the port of it is ever used. PySocks writes the name `0` for "not known yet".
    """
    address = _split_address(data, at)
    if address is None:
        return None
    try:
        return address.authority(), address.end
    except Refused:
        return authority_of_literal(bytes(4), address.port), address.end


def _split_address(data: bytes | bytearray, at: int) -> _WireAddress | None:
    if len(data) <= at:
        return None
    kind = data[at]
    if kind == NAME:
        if len(data) <= at + 1:
            return None
        start, length = at + 2, data[at + 1]
    elif kind in (IPV4, IPV6):
        start, length = at + 1, 4 if kind == IPV4 else 16
    else:
        raise Refused(UNKNOWN_ADDRESS_TYPE)
    end = start + length
    if len(data) < end + 2:
        return None
    return _WireAddress(kind, bytes(data[start:end]), int.from_bytes(data[end : end + 2], "big"), end + 2)


class Datagram(NamedTuple):
    """One datagram of a client: its target, and where its data begins."""

    target: Authority
    start: int


def read_datagram(data: bytes | bytearray) -> Datagram | None:
    """The head of a client's datagram; None for one that is to be dropped (RFC 1928 section 7).

    Dropped are fragments, which this proxy does not put together, and whatever is not well-formed.
    """
    if len(data) < 4 or data[0] or data[1] or data[2]:
        return None
    try:
        found = read_address(data, 3)
    except Refused:
        return None
    if found is None or found[0].port == 0:
        return None
    return Datagram(*found)


def pack_datagram_head(source: Endpoint) -> bytes:
    """What stands before the data of a datagram to the client; `source` is who sent the data."""
    return b"\0\0\0" + pack_address(source)


GENERAL = 1
RULE = 2
NETWORK_UNREACHABLE = 3
HOST_UNREACHABLE = 4
REFUSED = 5
TIMED_OUT = 6
UNKNOWN_COMMAND_CODE = 7
UNKNOWN_ADDRESS_TYPE_CODE = 8

V4_GRANTED = 90
V4_REJECTED = 91
"""Also for what was refused because of the USERID: 92 and 93 are about identd, which is not queried here."""

UNKNOWN_COMMAND = Failure(400, "http_request_error", "the command is not supported", close=True)

_OF_FAILURE = {
    UNKNOWN_COMMAND: UNKNOWN_COMMAND_CODE,
    NOT_THROUGH_UPSTREAMS: UNKNOWN_COMMAND_CODE,
    UNKNOWN_ADDRESS_TYPE: UNKNOWN_ADDRESS_TYPE_CODE,
}
_OF_KIND = {
    "destination_ip_prohibited": RULE,
    "http_request_denied": RULE,
    "destination_ip_unroutable": NETWORK_UNREACHABLE,
    "destination_unavailable": HOST_UNREACHABLE,
    "dns_error": HOST_UNREACHABLE,
    "dns_timeout": HOST_UNREACHABLE,
    "connection_refused": REFUSED,
    "connection_timeout": TIMED_OUT,
}
"""By the error type of RFC 9209. What is not here is a general failure."""


def code_of(failure: Failure) -> int:
    """The reply code of SOCKS5 for `failure`."""
    if failure.status == 429:
        return RULE
    if failure.rule == NO_UPSTREAM_MATCHES.rule:
        return GENERAL
    return _OF_FAILURE.get(failure) or _OF_KIND.get(failure.kind, GENERAL)


def v5_granted(bound: Endpoint) -> bytes:
    """Success, with BND.ADDR and BND.PORT."""
    return b"\x05\x00\x00" + pack_address(bound)


def v5_failed(failure: Failure) -> bytes:
    """The reply for `failure`; there is no bound address then."""
    return bytes((5, code_of(failure), 0)) + pack_address(UNSPECIFIED)


def v4_granted(bound: Endpoint) -> bytes:
    """Success; an IPv6 address can't be written and becomes 0.0.0.0, "the address of this proxy"."""
    return _v4(V4_GRANTED, bound if ":" not in bound[0] else (UNSPECIFIED[0], bound[1]))


def v4_failed() -> bytes:
    """Rejected or failed; SOCKS4 has no reasons."""
    return _v4(V4_REJECTED, UNSPECIFIED)


def _v4(code: int, endpoint: Endpoint) -> bytes:
    packed = pack_address(endpoint)
    return bytes((0, code)) + packed[5:] + packed[1:5]
