"""What the other workers of a proxy have used of one account since the collector's last total.

The total says how far it includes what each process has counted; what each has counted by now is in shared memory. So
the sum of both is exact at any moment, whether the collector is there or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.bus.loop import Loop
from actors.bus.messages.accounts import Counted
from actors.workers.usage import NO_PLACE, Used
from actors.workers.worker import Worker


class UsedElsewhere:
    """An account that this worker holds under a serial. What the others have counted before does not count yet."""

    def __init__(self, loop: Loop, worker: Worker, digest: int, serial: int) -> None:
        self._loop = loop
        self._worker = worker
        self._digest = digest
        self._place = worker.begin_usage(digest, serial)
        self._included: dict[tuple[int, int], int] = {}
        self.begin()

    def begin(self) -> None:
        """From now on what they count counts: a period begins."""
        self._included = {(each.instance, each.serial): each.bytes for each in self._others()}

    def include(self, counted: Iterable[Counted]) -> None:
        """A total includes so much of the other processes, and nothing of those that aren't named."""
        self._included = {(instance, serial): included for instance, serial, included in counted}

    def bytes(self) -> int:
        """What they have counted beyond that."""
        return sum(map(self._beyond, self._others()))

    def _beyond(self, used: Used) -> int:
        included = self._included.get((used.instance, used.serial))
        if included is None:  # it has begun since, or has ended and is part of the total
            return used.bytes if self._worker.is_living(used.instance) else 0
        return max(0, used.bytes - included)

    def _others(self) -> list[Used]:
        return self._worker.used_elsewhere(self._digest, self._loop.now)

    def count(self, counted: int) -> None:
        """This worker has counted so many bytes since it began to hold the account."""
        if self._place != NO_PLACE:
            self._worker.count_usage(self._place, counted)

    def end(self) -> None:
        """This worker holds it no more."""
        if self._place != NO_PLACE:
            self._worker.end_usage(self._place)
            self._place = NO_PLACE

    def __repr__(self) -> str:
        return f"<UsedElsewhere: {self.bytes()} bytes>"
