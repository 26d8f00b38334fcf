"""When an actor tells its counters: every second while they change, now and then when they don't.

A timer that looks every second whether something has changed would be most of what two hundred idle actors do. So it
runs only for as long as it finds news, and starts again when somebody stirs (`Loop.when_stirred`).

Nobody says whether the counters were heard, so they are told again: every `REPEATED_AFTER` seconds while clients are
connected, which is how a collector knows that they still are; else after twice the time of the time before.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Loop, Timer
from actors.bus.messages.metrics import Counters

PERIOD = 1.0
REPEATED_AFTER = 5.0
REPEATED_MAX = 60.0


class CounterPublisher:
    """Calls `tell` with what `count` gives. `count` gives None as long as there is nothing to be counted."""

    def __init__(self, loop: Loop, count: Callable[[], Counters | None], tell: Callable[[Counters], None]) -> None:
        self._loop = loop
        self._count = count
        self._tell = tell
        self._last: Counters | None = None
        self._told = 0.0
        self._pause = REPEATED_AFTER
        self._timer: Timer | None = None
        loop.when_stirred(self._stirred)

    def tell(self) -> None:
        """Tell the counters now, if there are any."""
        self._last = self._count()
        if self._last is not None:
            self._told = self._loop.now
            self._tell(self._last)

    def _stirred(self) -> None:
        self._look_after(PERIOD)

    def _look(self) -> None:
        counters = self._count()
        if counters is not None and counters.changed_since(self._last):
            self._pause = REPEATED_AFTER
            self.tell()
            self._look_after(PERIOD)
            return
        self._loop.when_stirred(self._stirred)
        if counters is not None:
            self._repeat(counters)

    def _repeat(self, counters: Counters) -> None:
        if self._loop.now - self._told >= self._pause:
            self.tell()
            if not counters.active_connections:
                self._pause = min(2 * self._pause, REPEATED_MAX)
        self._look_after(self._told + self._pause - self._loop.now)

    def _look_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._look)
