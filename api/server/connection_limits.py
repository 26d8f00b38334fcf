"""What counts as one client, and how many connections the management API takes of it, of all that there may be."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

FEWEST = 50
"""Any address has at least so many."""


HOME = 64
"""Length of the IPv6 network that one host or home has for itself (RFC 6177): 2^64 addresses are no more than one."""


@lru_cache(maxsize=4096)
def counted_as(address: str) -> str:
    """Whom an address counts for: itself, or with IPv6 its network. What is no address is itself, too."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    plain = getattr(found, "ipv4_mapped", None) or found
    return str(ip_network((plain, HOME), strict=False)) if isinstance(plain, IPv6Address) else str(plain)


def per_address(max_connections: int) -> int:
    """Connections of one address at the same time: a quarter of all."""
    return max(FEWEST, max_connections // 4)
