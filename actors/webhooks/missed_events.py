"""Events that were received and could not be stored, until they are stored after all, or are known to be lost.

The supervisor remembers the last `REMEMBERED` events of all and replays them. Older ones are nowhere any more.
"""

from __future__ import annotations

from actors.bus.events import REMEMBERED


class MissedEvents:
    """The ids, in the order in which they were received."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self.lost = 0
        """Events that no process has any more, and that the outbox has not counted yet."""

    def add(self, event_id: str) -> None:
        """It could not be stored. Of more than the supervisor remembers, the first is lost."""
        self._ids[event_id] = None
        if len(self._ids) > REMEMBERED:
            del self._ids[next(iter(self._ids))]
            self.lost += 1

    def stored(self, event_id: str) -> None:
        """It is stored now."""
        self._ids.pop(event_id, None)

    def missing(self) -> frozenset[str]:
        """Those that a replay requested now must contain; for `settle` after the replay."""
        return frozenset(self._ids)

    def settle(self, missing: frozenset[str]) -> None:
        """All that was replayed is stored; what is still missing of those before the replay is lost."""
        gone = self._ids.keys() & missing
        for event_id in gone:
            del self._ids[event_id]
        self.lost += len(gone)
