"""Requests to actors that are starting: they wait in the router until the actor is ready.

Between the moment when a process is made and its hello no process has the actor's name. A request that comes then would
be refused, though the actor will be ready within some milliseconds; so it waits, for a bounded time.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Loop, Timer

WAIT_MAX = 2.5
"""Seconds that a request waits: less than its sender does, as a rule."""
WAITING_MAX = 100
"""Requests that wait for one actor; those beyond it are refused."""

STARTING = "it is starting"
ASLEEP = "its proxy sleeps"
"""Why a request is not passed on: the forwarding actor of a proxy that sleeps has no process."""


class _Waiting:
    __slots__ = ("refuse", "send", "timer")

    def __init__(self, send: Callable[[], None], refuse: Callable[[], None], timer: Timer) -> None:
        self.send = send
        self.refuse = refuse
        self.timer = timer


class StartupQueue:
    """See the module. Names are as on the wire."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._expected: dict[bytes, list[_Waiting]] = {}

    def expect(self, name: bytes) -> None:
        """An actor of this name is starting."""
        self._expected.setdefault(name, [])

    def add(self, name: bytes, send: Callable[[], None], refuse: Callable[[], None]) -> bool:
        """Call `send` when the actor is ready, else `refuse`. False when it is not expected, or its queue is full."""
        waiting = self._expected.get(name)
        if waiting is None or len(waiting) >= WAITING_MAX:
            return False

        def give_up() -> None:
            waiting.remove(entry)
            refuse()

        entry = _Waiting(send, refuse, self._loop.call_later(WAIT_MAX, give_up))
        waiting.append(entry)
        return True

    def arrived(self, name: bytes) -> None:
        """The actor is ready: send what has waited for it."""
        for each in self._end(name):
            each.send()

    def gone(self, name: bytes) -> None:
        """No actor of this name is starting any more: refuse what has waited for it."""
        for each in self._end(name):
            each.refuse()

    def _end(self, name: bytes) -> list[_Waiting]:
        waiting = self._expected.pop(name, [])
        for each in waiting:
            each.timer.cancel()
        return waiting
