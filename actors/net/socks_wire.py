"""Addresses as SOCKS5 writes them (RFC 1928 section 5): one octet for the kind, the address, and a port."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

IPV4, NAME, IPV6 = 1, 3, 4

Endpoint = tuple[str, int]
"""An address in its usual text form, without a scope, and a port."""

UNSPECIFIED: Endpoint = ("0.0.0.0", 0)  # noqa: S104 - written where there is no address to name


def pack_address(endpoint: Endpoint) -> bytes:
    """An address and a port as ATYP, ADDR, PORT. Raises `ValueError` for a host that is no address."""
    host, port = endpoint
    return _pack_host(host) + port.to_bytes(2, "big")


@lru_cache(maxsize=256)
def _pack_host(host: str) -> bytes:
    return b"\x04" + IPv6Address(host).packed if ":" in host else b"\x01" + IPv4Address(host).packed


def endpoint_of(address: tuple[str, int] | tuple[str, int, int, int]) -> Endpoint:
    """What `getsockname`, `accept` or `recvfrom` returns, with an IPv4 address written as one, and no scope."""
    host = address[0].partition("%")[0]
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host, address[1]
