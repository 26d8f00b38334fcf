"""Events that were heard and could not be stored, until they are stored after all, or are known to be lost.

The supervisor remembers the last `REMEMBERED` events of all and gives them again. What was heard before those is
forgotten there, too; nobody has it any more.
"""

from __future__ import annotations

from actors.bus.events import REMEMBERED


class MissedEvents:
    """The ids, in the order in which they were heard."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self.lost = 0
        """Events that nobody has any more, and that aren't noted as lost yet."""

    def add(self, event_id: str) -> None:
        """It could not be stored. Of more than the supervisor remembers, the first is lost."""
        self._ids[event_id] = None
        if len(self._ids) > REMEMBERED:
            del self._ids[next(iter(self._ids))]
            self.lost += 1

    def stored(self, event_id: str) -> None:
        """It is stored now."""
        self._ids.pop(event_id, None)

    def asked_for(self) -> frozenset[str]:
        """Those that an answer must have which is asked for now; it goes to `settle` later."""
        return frozenset(self._ids)

    def settle(self, asked_for: frozenset[str]) -> None:
        """All that the supervisor remembered then is stored; what is still owed of it is lost."""
        gone = self._ids.keys() & asked_for
        for event_id in gone:
            del self._ids[event_id]
        self.lost += len(gone)
