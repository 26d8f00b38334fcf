"""Requests per minute: of small limits each request's time is kept, larger ones are counted with two numbers.

Those make a sliding minute of this minute and a part of the last: requests of the last one count as evenly spread
over it, so as this minute grows they count less and less. That errs by little where there are many requests,
and costs the same at every rate; with a limit of one it would err by a minute.

Requests that were counted before the proxy slept, until the windows that they belong to are made again. A window is
made when its client, account or rule is met, so what was kept waits here for that. It counts for two minutes at most.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

from actors.bus.loop import Loop
from actors.forwarding.limits.kept_window import KeptWindow

MINUTE: Final = 60.0
EXACT: Final = 120
"""Up to this limit every request's time is kept."""


class SlidingWindow:
    """The requests of one account or client. Times are of one monotonic clock."""

    __slots__ = ("_before", "_count", "_start", "_times")

    def __init__(self, now: float) -> None:
        self._times: deque[float] | None = None
        self._start = now
        self._count = 0
        self._before = 0

    def try_acquire(self, limit: int, now: float) -> int:
        """Count one request and return 0; when `limit` is reached, count nothing and return the seconds to wait."""
        if limit <= EXACT:
            return self._try_acquire_exactly(limit, now)
        self._advance(now)
        passed = now - self._start
        if self._before * (1 - passed / MINUTE) + self._count + 1 <= limit:
            self._count += 1
            return 0
        return max(1, math.ceil(self._wait(limit, passed)))

    def count(self, now: float) -> int:
        """Requests that count, rounded up."""
        self._advance(now)
        kept = 0 if self._times is None else sum(each > now - MINUTE for each in self._times)
        return max(kept, self._count + math.ceil(self._before * (1 - (now - self._start) / MINUTE)))

    def idle(self, now: float) -> bool:
        """Whether nothing in it counts any more."""
        self._advance(now)
        times = self._times
        return self._count == 0 and self._before == 0 and (not times or times[-1] <= now - MINUTE)

    def kept(self) -> KeptWindow:
        """What it has counted, for a process that comes after this one."""
        return KeptWindow(self._start, self._count, self._before, tuple(self._times or ()))

    def add(self, kept: KeptWindow) -> None:
        """Count what another process has counted. Of two minutes the later one holds, so that nothing ends early."""
        self._start = max(self._start, kept.start) if self._count or self._before else kept.start
        self._count += kept.count
        self._before += kept.before
        if kept.times:
            self._times = deque(sorted((*(self._times or ()), *kept.times)))

    def _try_acquire_exactly(self, limit: int, now: float) -> int:
        times = self._times
        if times is None:
            times = self._times = deque()
        while times and times[0] <= now - MINUTE:
            times.popleft()
        if len(times) < limit:
            times.append(now)
            return 0
        return max(1, math.ceil(times[len(times) - limit] + MINUTE - now))

    def _advance(self, now: float) -> None:
        minutes = int((now - self._start) // MINUTE)
        if minutes > 0:
            self._before = self._count if minutes == 1 else 0
            self._count = 0
            self._start += minutes * MINUTE

    def _wait(self, limit: int, passed: float) -> float:
        if self._count < limit and self._before:
            return MINUTE * (1 - (limit - 1 - self._count) / self._before) - passed
        return MINUTE - passed + MINUTE * max(0.0, 1 - (limit - 1) / max(1, self._count))


Key = tuple[str, ...]
"""What a window is of, and its name there: `("client", address)`, `("rule", policy, name)`."""


class FormerWindows:
    """Makes all windows of a process."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._kept: dict[Key, list[KeptWindow]] = {}

    def put(self, kept: Iterable[tuple[Key, KeptWindow]]) -> None:
        """Keep these for the windows to come. Several of one key add up."""
        for key, window in kept:
            self._kept.setdefault(key, []).append(window)
        if self._kept:
            self._loop.call_later(2 * MINUTE, self._kept.clear)

    def new(self, *key: str) -> SlidingWindow:
        """A window with what was kept for it."""
        window = SlidingWindow(self._loop.now)
        for each in self._kept.pop(key, ()) if self._kept else ():
            window.add(each)
        return window

    def take(self) -> Iterable[tuple[Key, SlidingWindow]]:
        """All windows that were not made so far; from now on there are none."""
        return [(key, self.new(*key)) for key in tuple(self._kept)]

    def left(self) -> Iterable[tuple[Key, KeptWindow]]:
        """What no window was made for so far."""
        return [(key, each) for key, kept in self._kept.items() for each in kept]

    def __repr__(self) -> str:
        return f"<FormerWindows: {len(self._kept)}>"
