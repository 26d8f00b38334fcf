"""Recurring errors are logged when they begin, when they change, once per period while they last, and at their end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

PERIOD = 60.0
"""Seconds between two lines about the same error."""


class LogThrottle:
    """Which of many like events get a log line: the first, one with another key, and one per `period` seconds.

    `clock` is monotonic. With a period of infinity an event is logged again only after `reset` or another key.
    """

    def __init__(self, period: float = PERIOD, clock: Callable[[], float] = time.monotonic) -> None:
        self._period = period
        self._clock = clock
        self._last: tuple[float, str] | None = None

    def due(self, key: str = "") -> bool:
        """True if an event with this key is to be logged now."""
        now = self._clock()
        if self._last is not None and self._last[1] == key and now - self._last[0] < self._period:
            return False
        self._last = now, key
        return True

    def reset(self) -> bool:
        """The next event is due. Returns whether one was logged since the last reset."""
        logged, self._last = self._last is not None, None
        return logged


class ThrottledLog:
    """One kind of error; a line is `what: error`. `recovery` is the line at its end, `what: recovered` by default."""

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        period: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
        recovery: str = "",
    ) -> None:
        self._log = log
        self._what = what
        self._recovery = recovery or f"{what}: recovered"
        self._throttle = LogThrottle(period, clock)
        self._suppressed = 0

    def error(self, error: object, level: int = logging.ERROR, key: str | None = None) -> None:
        """The error occurred (again). Its text tells one error from another, unless there is a `key`."""
        text = str(error)
        if not self._throttle.due(text if key is None else key):
            self._suppressed += 1
            return
        more = f" ({self._suppressed} more since last logged)" if self._suppressed else ""
        self._log.log(level, "%s: %s%s", self._what, text, more)
        self._suppressed = 0

    def recovered(self) -> None:
        """What failed has succeeded; logged if its error was."""
        if self._throttle.reset():
            self._log.info("%s", self._recovery)
            self._suppressed = 0
