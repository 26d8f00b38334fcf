"""Addresses and datagram heads as SOCKS5 writes them (RFC 1928 sections 4 to 7). Nothing here waits or sends.

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

import socket
from functools import lru_cache
from typing import NamedTuple

from actors.forwarding.protocols.failures import Failure, Refused
from actors.forwarding.protocols.http.targets import Authority, authority_of_literal, authority_of_name

IPV4, NAME, IPV6 = 1, 3, 4

UNKNOWN_ADDRESS_TYPE = Failure(400, "http_request_error", "the address type is not supported", close=True)

Endpoint = tuple[str, int]
"""An address in its usual text form, without a scope, and a port."""

UNSPECIFIED: Endpoint = ("0.0.0.0", 0)  # noqa: S104 - written where there is no address to tell


def pack_address(endpoint: Endpoint) -> bytes:
    """An address and a port as ATYP, ADDR, PORT."""
    host, port = endpoint
    if ":" in host:
        return b"\x04" + socket.inet_pton(socket.AF_INET6, host) + port.to_bytes(2, "big")
    return b"\x01" + socket.inet_pton(socket.AF_INET, host) + port.to_bytes(2, "big")


def read_address(data: bytes | bytearray, at: int) -> tuple[Authority, int] | None:
    """The address that begins at `at` and the index behind it; None when not all of it is there.

    The port may be 0. Raises `Refused`: with `UNKNOWN_ADDRESS_TYPE`, or 400 for a name that isn't one.
    """
    parts = _parts(data, at)
    return None if parts is None else (_authority(parts), parts.end)


def read_source(data: bytes | bytearray, at: int) -> tuple[Authority, int] | None:
    """As `read_address`, where a client says from where its datagrams will come; `UNSPECIFIED`'s host for what is no
    name.

    Only the port of it is ever used. PySocks writes the name `0` for "not known yet".
    """
    parts = _parts(data, at)
    if parts is None:
        return None
    try:
        return _authority(parts), parts.end
    except Refused:
        return authority_of_literal(bytes(4), parts.port), parts.end


class _Parts(NamedTuple):
    """An address as it is written: of which kind, its octets, its port, and the index behind it."""

    kind: int
    host: bytes
    port: int
    end: int


def _parts(data: bytes | bytearray, at: int) -> _Parts | None:
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
    return _Parts(kind, bytes(data[start:end]), int.from_bytes(data[end : end + 2], "big"), end + 2)


@lru_cache(maxsize=256)
def _authority(parts: _Parts) -> Authority:
    """Clients come back to the same targets, and every tunnel holds its own as long as it lives."""
    return (authority_of_name if parts.kind == NAME else authority_of_literal)(parts.host, parts.port)


class Datagram(NamedTuple):
    """One datagram of a client: where to, and where its data begins."""

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


def endpoint_of(address: tuple[str, int] | tuple[str, int, int, int]) -> Endpoint:
    """What `getsockname`, `accept` or `recvfrom` tells, with an IPv4 address written as one, and no scope."""
    host = address[0].partition("%")[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host, address[1]
