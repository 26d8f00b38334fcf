"""Where the name of an actor leads on the bus: to its process, or to that of its lowest worker that serves.

An actor has one worker, a proxy may have several, which share a route. When the one that the name leads to dies,
another one that serves takes over in the same turn; requests wait only where none serves and one is expected.
"""

from __future__ import annotations

from actors.bus.mailbox import MailboxRouter


class Route:
    """The route of one name. Workers are known by their index."""

    def __init__(self, router: MailboxRouter, name: str) -> None:
        self._router = router
        self._name = name
        self._serving: dict[int, int] = {}
        self._expected: set[int] = set()
        self._current: int | None = None

    def expect(self, index: int) -> None:
        """A process of this worker is starting."""
        self._expected.add(index)
        if self._current is None:
            self._router.expect(self._name)

    def serves(self, index: int, instance: int) -> None:
        """This process of the worker is ready for messages."""
        self._expected.discard(index)
        self._serving[index] = instance
        self._lead()

    def gone(self, index: int) -> None:
        """The worker has no process at present."""
        self._expected.discard(index)
        self._serving.pop(index, None)
        self._lead()

    def _lead(self) -> None:
        before, lowest = self._current, min(self._serving, default=None)
        self._current = None if lowest is None else self._serving[lowest]
        if self._current is not None:
            if self._current != before:
                self._router.set_current_instance(self._name, self._current)
        elif before is not None or not self._expected:
            self._router.clear_current_instance(self._name)
            if self._expected:
                self._router.expect(self._name)
