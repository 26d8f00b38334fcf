"""Rate limits: two windows for each caller, and the response headers about them.

All interactive sessions of a user share two further windows, which are wider: opening more sessions gains nothing. An
API key has two more behind its own, shared with all other keys of its owner: three keys are not three limits.

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

from config.settings.settings import RateLimiting

KEYS_TOGETHER = 2
"""All keys of one owner may do so many times what one key may."""


@dataclass(frozen=True, slots=True)
class RateLimitDecision:
    """The decision about one request: `retry_after` is 0 or, if it is refused, seconds; `headers` are sent anyway."""

    retry_after: int
    headers: dict[str, str]


class RateLimits:
    """The limits of all callers, in memory. Thread-safe."""

    def __init__(self, settings: RateLimiting) -> None:
        self.settings = settings
        self.enabled = settings.enabled
        self._plain = _windows(settings.requests_per_minute, settings.requests_per_hour)
        self._sessions = _windows(settings.session_per_minute, settings.session_per_hour)
        self._owners = tuple(
            (f"owner-{name}", item.__class__(item.amount * KEYS_TOGETHER)) for name, item in self._plain
        )
        self._limiter = FixedWindowRateLimiter(MemoryStorage())
        self._lock = threading.Lock()

    def hit(self, caller: str, interactive: bool = False, owner: str | None = None) -> RateLimitDecision:
        """Count one request of `caller`, made by an interactive session, by an API key of `owner`, or by neither.

        A request that is refused counts in no window.
        """
        counted = self._counted(caller, interactive, owner)
        with self._lock:
            full = [item for _, item, whose in counted if not self._limiter.test(item, whose)]
            if not full:
                for _, item, whose in counted:
                    self._limiter.hit(item, whose)
        return self._decision(counted, bool(full))

    def exhausted(self, caller: str) -> bool:
        """Whether the next request of `caller`, which no session made, would be refused."""
        return self.enabled and not all(self._limiter.test(item, caller) for _, item in self._plain)

    def _counted(self, caller: str, interactive: bool, owner: str | None) -> list[tuple[str, RateLimitItem, str]]:
        """The windows in which a request counts, each with whose it is."""
        if interactive:
            return [(name, item, f"sessions of {caller}") for name, item in self._sessions]
        behind = [] if owner is None else [(name, item, f"keys of {owner}") for name, item in self._owners]
        return [*((name, item, caller) for name, item in self._plain), *behind]

    def _decision(self, counted: list[tuple[str, RateLimitItem, str]], refused: bool) -> RateLimitDecision:
        now = time.time()
        policy, state, nearest = [], [], (math.inf, 0, 0.0)
        wait = 0
        for name, item, whose in counted:
            stats = self._limiter.get_window_stats(item, whose)
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
        return RateLimitDecision(max(wait, 1) if refused else 0, headers)


def _windows(per_minute: int, per_hour: int) -> tuple[tuple[str, RateLimitItem], ...]:
    return ("burst", RateLimitItemPerMinute(per_minute)), ("hourly", RateLimitItemPerHour(per_hour))
