"""When an actor tells its counters: every second while they change, now and then when they don't, else not at all.

A timer that looks every second whether something has changed would be most of what two hundred idle actors do. So it
runs only for as long as it finds news, and starts again when somebody stirs (`Loop.when_stirred`). What changes by time
alone (a deadline has passed) is found by `look`, which the actor's pulse calls anyway.

Nobody says whether the counters were heard, so they are told again: every `REPEATED_AFTER` seconds while clients are
connected, which is how a collector knows that they still are; else after twice the time of the time before.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Loop
from actors.bus.messages import Counters

PERIOD = 1.0
REPEATED_AFTER = 5.0
REPEATED_MAX = 60.0


class Teller:
    """Calls `tell` with what `count` gives. `count` gives None as long as there is nothing to be counted."""

    def __init__(self, loop: Loop, count: Callable[[], Counters | None], tell: Callable[[Counters], None]) -> None:
        self._loop = loop
        self._count = count
        self._tell = tell
        self._last: Counters | None = None
        self._told = 0.0
        self._repeated_after = REPEATED_AFTER
        loop.when_stirred(self._stirred)

    def look(self) -> bool:
        """Tell the counters if they have changed or if it is time to repeat them; True when they have changed."""
        counters = self._count()
        if counters is None:
            return False
        news = counters != self._last
        if news or counters.active_connections:
            self._repeated_after = REPEATED_AFTER
        due = self._loop.now - self._told >= self._repeated_after
        if due and not news:
            self._repeated_after = min(2 * self._repeated_after, REPEATED_MAX)
        if due or news:
            self._last, self._told = counters, self._loop.now
            self._tell(counters)
        return news

    def _stirred(self) -> None:
        self._loop.call_later(PERIOD, self._due)

    def _due(self) -> None:
        if self.look():
            self._stirred()
        else:
            self._loop.when_stirred(self._stirred)
