"""How many connections the management API takes of one client, of all that there may be."""

from __future__ import annotations

FEWEST = 50
"""Any address has at least so many."""


def per_address(max_connections: int) -> int:
    """Connections of one address at the same time: a quarter of all."""
    return max(FEWEST, max_connections // 4)
