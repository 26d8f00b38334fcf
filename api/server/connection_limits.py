"""The share of one client in the connections of the management API."""

from __future__ import annotations

MIN_PER_ADDRESS = 50


def per_address(max_connections: int) -> int:
    """Connections that one address may have at the same time: a quarter of all."""
    return max(MIN_PER_ADDRESS, max_connections // 4)
