"""Bandwidth as a token bucket: so many bytes a second, smoothly, for all who share it.

A byte that moves takes a token; tokens grow with time, up to what `BURST` seconds give. Who finds too few doesn't try
again and again but waits in a queue, reads nothing meanwhile (so the kernel holds the sender up), and is woken by one
timer for the whole bucket, first come first served. Whoever takes tokens takes only a share of them while others wait,
so that all flow at the same pace.

What has moved already can't be held back: an answer's head, a datagram. It is paid for afterwards, the level being
below zero for as long, but never by more than a second's worth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from actors.bus.loop import Loop

BURST = 0.08
"""Seconds of full rate that an idle bucket saves up; within the promise of ten percent over a second."""
TICK = 0.02
"""Seconds of full rate that must be there before the next in the queue is woken."""
PIECE = 1460
"""Bytes below which it isn't worth moving any, where the rate gives them within a tick: one segment on the wire."""

UNLIMITED = 1 << 30
"""A share that is as good as none."""

Wake = Callable[[], None]


class TokenBucket:
    """`rate` is bytes per second, 0 for no limit. Time is the loop's."""

    __slots__ = ("_at", "_level", "_loop", "_timed", "_waiting", "rate")

    def __init__(self, loop: Loop, rate: int) -> None:
        self._loop = loop
        self.rate = rate
        self._level = rate * BURST
        self._at = loop.now
        self._waiting: deque[Wake] = deque()
        self._timed = False

    def set_rate(self, rate: int) -> None:
        """Another rate from now on, for those who wait, too."""
        self._refill()
        self.rate = rate
        self._level = min(self._level, rate * BURST)
        waiting, self._waiting = self._waiting, deque()
        for wake in waiting:
            self._loop.call_soon(wake)

    def share(self) -> int:
        """Bytes that one of those who share it may move now; 0 when it has to wait."""
        if not self.rate:
            return UNLIMITED
        level = self._refill()
        if level < self._least:
            return 0
        return int(max(self._least, level / (1 + len(self._waiting))))

    def spend(self, count: int) -> None:
        """So many bytes have moved."""
        if self.rate:
            self._level = max(self._refill() - count, -float(self.rate))

    def wait(self, wake: Wake) -> None:
        """Call `wake` once, later, when there is a share; it is taken or left then."""
        if not self.rate:
            self._loop.call_later(TICK, wake)  # somebody else than this bucket holds it up
            return
        self._waiting.append(wake)
        if not self._timed:
            self._set_timer()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def _least(self) -> float:
        return max(1.0, min(PIECE, self.rate * TICK))

    def _refill(self) -> float:
        now = self._loop.now
        if now > self._at:
            self._level = min(self.rate * BURST, self._level + (now - self._at) * self.rate)
            self._at = now
        return self._level

    def _set_timer(self) -> None:
        self._timed = True
        missing = max(self._least, self.rate * TICK) - self._refill()
        self._loop.call_later(max(missing / self.rate, 0.001), self._due)

    def _due(self) -> None:
        """Wake those whose turn it is; each takes its share, or nothing."""
        self._timed = False
        if not self._waiting or not self.rate:
            return
        for _ in range(len(self._waiting)):
            if self._refill() < self._least:
                break
            self._waiting.popleft()()
        if self._waiting and not self._timed:
            self._set_timer()

    def __repr__(self) -> str:
        return f"<Bucket of {self.rate} B/s, {self._level:.0f} left, {len(self._waiting)} waiting>"
