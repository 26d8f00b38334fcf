"""The other workers of a proxy: how many they are, and what is open there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from actors.state.live_state import LiveState

OPEN: Final = "open"


class OpenCount(NamedTuple):
    """Open connections of all workers that live, and how many workers these are."""

    connections: int
    processes: int


class ProxyWorkers:
    """The workers of one proxy. `on_processes` is called with their number when it has become another."""

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self._open = state.key(OPEN)
        self._open.begin()
        self.on_processes: Callable[[int], None] = lambda _count: None
        self._processes = 0
        self._own = 0

    def set_open(self, count: int) -> None:
        """So many connections are open here."""
        self._own = count
        self._open.set_connections(count)

    def open_connections(self) -> OpenCount:
        """Those of all workers, this one included, and how many workers there are."""
        others = self._open.connections_of_each()
        if len(others) + 1 != self._processes:
            self._processes = len(others) + 1
            self.on_processes(self._processes)
        return OpenCount(sum(others) + self._own, self._processes)

    def __repr__(self) -> str:
        return f"<ProxyWorkers: {self.open_connections()}>"
