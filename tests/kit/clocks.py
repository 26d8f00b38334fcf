"""A clock for tests, which stands still until it is set."""

from __future__ import annotations


class Clock:
    """Called for its time, as `time.monotonic` is; `now` may be set."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
