"""Rate limits: two windows for each caller, and the headers that tell about them.

All interactive sessions of a user share two further windows, which are wider: opening more sessions gains nothing.

The windows are fixed ones that begin with the first request in them. Headers: `X-RateLimit-*` of the window nearest
to empty, and `RateLimit-Policy` and `RateLimit` of the IETF draft (draft-ietf-httpapi-ratelimit-headers) for both.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

from limits import RateLimitItem, RateLimitItemPerHour, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

from config.settings import RateLimiting


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one request: `retry_after` is 0 when it may go on, else seconds; `headers` go out either way."""

    retry_after: int
    headers: dict[str, str]


class RateLimits:
    """The limits of all callers, in memory. Thread-safe."""

    def __init__(self, settings: RateLimiting) -> None:
        self.settings = settings
        self.enabled = settings.enabled
        self._callers = Windows(settings.requests_per_minute, settings.requests_per_hour)
        self._sessions = Windows(settings.session_per_minute, settings.session_per_hour)

    def hit(self, caller: str, interactive: bool = False) -> Verdict:
        """Count one request of `caller`, in the windows of the caller's interactive sessions if it came by one."""
        return (self._sessions if interactive else self._callers).hit(caller)

    def exhausted(self, caller: str) -> bool:
        """Whether the next request of `caller`, which no session made, would be refused."""
        return self.enabled and self._callers.exhausted(caller)


class Windows:
    """A window of a minute and one of an hour for each caller. Thread-safe."""

    def __init__(self, per_minute: int, per_hour: int) -> None:
        self._windows: tuple[tuple[str, RateLimitItem], ...] = (
            ("burst", RateLimitItemPerMinute(per_minute)),
            ("hourly", RateLimitItemPerHour(per_hour)),
        )
        self._limiter = FixedWindowRateLimiter(MemoryStorage())
        self._lock = threading.Lock()

    def hit(self, caller: str) -> Verdict:
        """Count one request of `caller`. A request that is refused counts in neither window."""
        with self._lock:
            full = [item for _, item in self._windows if not self._limiter.test(item, caller)]
            if not full:
                for _, item in self._windows:
                    self._limiter.hit(item, caller)
        return self._verdict(caller, bool(full))

    def exhausted(self, caller: str) -> bool:
        """Whether the next request of `caller` would be refused."""
        return not all(self._limiter.test(item, caller) for _, item in self._windows)

    def _verdict(self, caller: str, refused: bool) -> Verdict:
        now = time.time()
        policy, state, nearest = [], [], (math.inf, 0, 0.0)
        wait = 0
        for name, item in self._windows:
            stats = self._limiter.get_window_stats(item, caller)
            left = max(0, math.ceil(stats.reset_time - now))
            policy.append(f'"{name}";q={item.amount};w={item.get_expiry()}')
            state.append(f'"{name}";r={stats.remaining};t={left}')
            nearest = min(nearest, (stats.remaining, item.amount, stats.reset_time))
            if stats.remaining == 0:
                wait = max(wait, left, 1)
        headers = {
            "X-RateLimit-Limit": str(nearest[1]),
            "X-RateLimit-Remaining": str(nearest[0]),
            "X-RateLimit-Reset": str(math.ceil(nearest[2])),
            "RateLimit-Policy": ", ".join(policy),
            "RateLimit": ", ".join(state),
        }
        return Verdict(max(wait, 1) if refused else 0, headers)
