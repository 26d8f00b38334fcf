"""The other workers of a proxy: how many they are, what is open there, and what they use of a quota.

What they have used of one account since the collector's last total: the total says how far it includes what each
process has counted; what each has counted by now is in shared memory. So the sum of both is exact at any moment,
whether the collector is there or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from actors.bus.messages.accounts import Counted
from actors.state.counts import LiveState, SharedKey, Used
from actors.state.processes import short

OPEN: Final = "open"
_USAGE: Final = "usage"


class OpenCount(NamedTuple):
    """Open connections of all workers that live, and how many workers these are."""

    connections: int
    processes: int


class UsedByOthers:
    """An account that this worker holds under a serial. What the others have counted before does not count yet."""

    def __init__(self, key: SharedKey, serial: int) -> None:
        self._key = key
        self._included: dict[tuple[int, int], int] = {}
        key.begin_usage(serial)
        self.begin()

    def begin(self) -> None:
        """From now on what they count counts: a period begins."""
        self._included = {(each.instance, each.serial): each.bytes for each in self._key.used_by_others()}

    def include(self, counted: Iterable[Counted]) -> None:
        """A total includes so much of the other processes, and nothing of those that aren't named."""
        self._included = {(short(instance), serial): included for instance, serial, included in counted}
        self._key.keep_usage()

    def bytes(self) -> int:
        """What they have counted beyond that."""
        return sum(map(self._beyond, self._key.used_by_others()))

    def _beyond(self, used: Used) -> int:
        included = self._included.get((used.instance, used.serial))
        if included is None:  # it has begun since, or has ended and is part of the total
            return used.bytes if used.lives else 0
        return max(0, used.bytes - included)

    def count(self, counted: int) -> None:
        """This worker has counted so many bytes since it began to hold the account."""
        self._key.set_used(counted)

    def end(self) -> None:
        """This worker holds it no more."""
        self._key.end_usage()

    def __repr__(self) -> str:
        return f"<UsedByOthers: {self.bytes()} bytes>"


class ProxyWorkers:
    """The workers of one proxy. `on_processes` is called with their number when it has become another."""

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self._open = state.key(OPEN)
        self._open.begin()
        self.on_processes: Callable[[int], None] = lambda _count: None
        self._processes = 0
        self._own = 0

    def used(self, account_id: str, serial: int) -> UsedByOthers:
        """What the others use of an account that this worker holds under this serial from now on."""
        return UsedByOthers(self._state.key(_USAGE, account_id), serial)

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
