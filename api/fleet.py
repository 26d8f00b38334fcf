"""What requests and periodic work need of the fleet, whether this installation is a node of one or stands alone.

`StandAlone` is one machine, which loads nothing of a fleet. In a fleet `api.cluster.fleet_node` is in its place.
"""

from __future__ import annotations

import time
from typing import Protocol


class ThisNode(Protocol):
    """Thread-safe. Nothing here waits for the database, but what says so."""

    @property
    def node_id(self) -> str | None:
        """The id of this node; None without a fleet."""
        ...

    def clock(self) -> float:
        """Unix time, the same on all nodes: that of the database."""
        ...

    def cut_off_for(self) -> float | None:
        """Seconds since the last exchange with the database, when this node is cut off from it."""
        ...

    def wait_for(self, number: int, seconds: float) -> bool:
        """Wait until this node serves the commit with this number; whether it does."""
        ...

    def has_duty(self, name: str) -> bool:
        """Whether this node does now what one node does for all."""
        ...

    def claim(self, key: str) -> bool:
        """Whether this node is the one that announces this event of the fleet. Waits for the database, a second."""
        ...


class StandAlone:
    """The `ThisNode` of an installation without one."""

    node_id: str | None = None

    def clock(self) -> float:
        """See `ThisNode`."""
        return time.time()

    def cut_off_for(self) -> float | None:
        """See `ThisNode`."""
        return None

    def wait_for(self, number: int, seconds: float) -> bool:  # noqa: ARG002 - what was committed is served
        """See `ThisNode`."""
        return True

    def has_duty(self, name: str) -> bool:  # noqa: ARG002 - it does everything itself
        """See `ThisNode`."""
        return True

    def claim(self, key: str) -> bool:  # noqa: ARG002 - there is no other
        """See `ThisNode`."""
        return True
