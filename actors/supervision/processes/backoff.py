"""Delays before restarts of an actor: none, then 0.1 s, 0.2 s … 30 s; a run of 60 s resets them.

It is OTP's restart intensity turned into delays: a fault that happens once costs nothing, one that comes back at every
start costs little CPU and keeps the log readable, and the actor is never given up.
"""

from __future__ import annotations

FIRST_DELAY = 0.1
LONGEST_DELAY = 30.0
RESET_AFTER = 60.0
"""Seconds of running after which earlier failures don't count any more."""


class Backoff:
    """The delays of one actor. `now` is by the monotonic clock."""

    def __init__(self) -> None:
        self._failures = 0
        self._started: float | None = None

    def started(self, now: float) -> None:
        """It was started now."""
        self._started = now

    def failed(self, now: float) -> float:
        """It died, or could not be started, now. The seconds to wait before the next start."""
        if self._started is not None and now - self._started >= RESET_AFTER:
            self._failures = 0
        self._started = None
        self._failures += 1
        if self._failures == 1:
            return 0.0
        return float(min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self._failures - 2, 30)))

    def reset(self) -> None:
        """Earlier failures don't count any more."""
        self._failures = 0
