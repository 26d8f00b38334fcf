"""A clock for tests, which stands still until it is set, and a part of the real one in which the day stays the same."""

from __future__ import annotations

import time

from tests.kit.wait import wait_until

DAY = 86_400


def room_in_the_day(seconds: float = 60.0) -> None:
    """Wait for midnight (UTC) if it comes so soon: periods of usage end at it, while a test is under way too."""
    wait_until(lambda: -time.time() % DAY > seconds, "the next day", seconds + 120.0)


class Clock:
    """Called for its time, as `time.monotonic` is; `now` may be set."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """So much time has passed."""
        self.now += seconds
