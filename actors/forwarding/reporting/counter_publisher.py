"""Publishes an actor's counters: every second while they change, rarely while they don't.

A timer that checks every second whether something has changed would be most of the work of two hundred idle actors. So
it runs only while it finds changes, and is started again by the next activity (`Loop.on_next_activity`).

Published counters are not acknowledged, so they are repeated: every `REPEATED_AFTER` seconds while clients are
connected, by which a collector knows that they still are; else after twice the previous time.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Loop, Timer
from actors.bus.messages.metrics import Counters

PERIOD = 1.0
REPEATED_AFTER = 5.0
REPEATED_MAX = 60.0
FULL_EACH = 60


class CounterPublisher:
    """Calls `publish` with what `count` returns, which is None as long as there is nothing to count.

    There may be ten thousand rules that requests have matched. So most messages have only the counts of those that
    have, since the one before; `count(True)` returns all of them, for every `FULL_EACH`th message and repetitions.
    """

    def __init__(
        self, loop: Loop, count: Callable[[bool], Counters | None], publish: Callable[[Counters], None]
    ) -> None:
        self._loop = loop
        self._count = count
        self._publish = publish
        self._last: Counters | None = None
        self._published = 0
        self._published_at = 0.0
        self._pause = REPEATED_AFTER
        self._timer: Timer | None = None
        loop.on_next_activity(self._on_activity)

    def publish(self, full: bool = True) -> None:
        """Publish the counters now, if there are any."""
        self._last = self._count(full)
        if self._last is not None:
            self._published += 1
            self._published_at = self._loop.now
            self._publish(self._last)

    def _on_activity(self) -> None:
        self._check_after(PERIOD)

    def _check(self) -> None:
        counters = self._count(False)
        if counters is not None and counters.changed_since(self._last):
            self._pause = REPEATED_AFTER
            self.publish(self._published % FULL_EACH == 0)
            self._check_after(PERIOD)
            return
        self._loop.on_next_activity(self._on_activity)
        if counters is not None:
            self._repeat(counters)

    def _repeat(self, counters: Counters) -> None:
        if self._loop.now - self._published_at >= self._pause:
            self.publish()
            if not counters.active_connections:
                self._pause = min(2 * self._pause, REPEATED_MAX)
        self._check_after(self._published_at + self._pause - self._loop.now)

    def _check_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._check)
