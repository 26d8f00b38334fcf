"""Which addresses count as one client: with IPv6 a network, since a client has as many addresses in it as it likes; and
the share of one client in the connections of the management API."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from config.net.addresses import plain

CLIENT_PREFIX = 64
"""Length of the IPv6 network that one host or home has for itself (RFC 6177)."""
SITE_PREFIX = 48
"""Length of the longest one that a single site may have (RFC 6177); it holds 65,536 clients."""

MIN_PER_ADDRESS = 50


def per_address(max_connections: int) -> int:
    """Connections to the API that one address may have at the same time: a quarter of all."""
    return max(MIN_PER_ADDRESS, max_connections // 4)


@lru_cache(maxsize=4096)
def client_key(address: str) -> str:
    """The address itself, or the /64 of an IPv6 one. Text that is no address is returned as it is."""
    return _key(address, CLIENT_PREFIX)


def site_key(address: str) -> str:
    """The address itself, or the /48 of an IPv6 one: whose turn it is where clients wait for each other."""
    return _key(address, SITE_PREFIX)


def network_key(address: str) -> str:
    """The /24 of an IPv4 address, the /48 of an IPv6 one: what an owner of many addresses has most of."""
    key = site_key(address)
    return key if ":" in key or key.count(".") != 3 else f"{key.rpartition('.')[0]}.0/24"


def _key(text: str, length: int) -> str:
    if ":" not in text:
        return text
    try:
        address = plain(text)
    except ValueError:
        return text
    if isinstance(address, IPv4Address):
        return str(address)
    unused = 128 - length
    return f"{IPv6Address(int(address) >> unused << unused)}/{length}"
