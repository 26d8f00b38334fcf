"""Where a request came from, and what it is called.

The client's address is the peer's. `X-Forwarded-For` counts only when the peer is a trusted proxy, and then from the
right: the first address that isn't a trusted proxy itself is the client; what stands left of it anybody may have
written.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_REQUEST_ID = re.compile(r"[A-Za-z0-9._~+/=:-]{1,128}", re.ASCII)


def client_address(peer: str, forwarded_for: str | None, trusted: Sequence[str]) -> str:
    """The client's address as text."""
    current = _address(peer)
    hops = [hop.strip(" \t") for hop in (forwarded_for or "").split(",")] if forwarded_for else []
    while current is not None and hops and _trusted(current, trusted):
        following = _address(hops.pop())
        if following is None:
            break
        current = following
    return peer if current is None else str(current)


def request_id(given: str | None) -> str:
    """The client's own id of its request, if it is well formed, else a new one."""
    return given if given and _REQUEST_ID.fullmatch(given) else "req_" + secrets.token_hex(12)


def _trusted(address: IPv4Address | IPv6Address, networks: Sequence[str]) -> bool:
    return any(address in ip_network(network, strict=False) for network in networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
