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
from collections.abc import Callable
from dataclasses import dataclass, replace

from config.settings.settings import RateLimiting

SWEEP = 60.0
"""Seconds after which windows that are over are forgotten."""
KEYS_TOGETHER = 2
"""All keys of one owner may do so many times what one key may."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one request: `retry_after` is 0 or, if it is refused, seconds; `headers` are sent anyway."""

    retry_after: int
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class _FixedWindow:
    """So many requests in so many seconds, for each of those that it is for."""

    name: str
    amount: int
    seconds: int


@dataclass(slots=True)
class _BegunWindow:
    """The requests in a window that has begun, and when it ends (Unix seconds)."""

    ends: float
    requests: int = 0


_Counted = list[tuple[_FixedWindow, str]]
"""The windows in which a request counts, each with whose it is."""


class RateLimits:
    """The limits of all callers, in memory. Thread-safe."""

    def __init__(self, settings: RateLimiting, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.enabled = settings.enabled
        self._plain = _windows(settings.requests_per_minute, settings.requests_per_hour)
        self._sessions = _windows(settings.session_per_minute, settings.session_per_hour)
        self._owners = tuple(
            replace(each, name=f"owner-{each.name}", amount=each.amount * KEYS_TOGETHER) for each in self._plain
        )
        self._clock = clock
        self._counts: dict[tuple[str, str], _BegunWindow] = {}
        self._swept_at = clock()
        self._lock = threading.Lock()

    def hit(self, caller: str, interactive: bool = False, owner: str | None = None) -> Verdict:
        """Count one request of `caller`, made by an interactive session, by an API key of `owner`, or by neither.

        A request that is refused counts in no window.
        """
        counted = self._counted(caller, interactive, owner)
        with self._lock:
            now = self._clock()
            self._sweep(now)
            found = [self._count(window, whose, now) for window, whose in counted]
            is_full = any(count.requests >= window.amount for (window, _), count in zip(counted, found, strict=True))
            if not is_full:
                for (window, whose), count in zip(counted, found, strict=True):
                    count.requests += 1
                    self._counts[window.name, whose] = count
            return _verdict([window for window, _ in counted], found, is_full, now)

    def exhausted(self, caller: str) -> bool:
        """Whether the next request of `caller`, which no session made, would be refused."""
        with self._lock:
            now = self._clock()
            return self.enabled and any(self._count(each, caller, now).requests >= each.amount for each in self._plain)

    def _counted(self, caller: str, interactive: bool, owner: str | None) -> _Counted:
        if interactive:
            return [(each, f"sessions of {caller}") for each in self._sessions]
        behind = [] if owner is None else [(each, f"keys of {owner}") for each in self._owners]
        return [*((each, caller) for each in self._plain), *behind]

    def _count(self, window: _FixedWindow, whose: str, now: float) -> _BegunWindow:
        """That of the present window, or of one that would begin now."""
        known = self._counts.get((window.name, whose))
        return _BegunWindow(now + window.seconds) if known is None or known.ends <= now else known

    def _sweep(self, now: float) -> None:
        if now - self._swept_at > SWEEP:
            self._swept_at = now
            self._counts = {key: count for key, count in self._counts.items() if count.ends > now}


def _verdict(windows: list[_FixedWindow], counts: list[_BegunWindow], refused: bool, now: float) -> Verdict:
    policy, state, nearest = [], [], (math.inf, 0, 0.0)
    wait = 1
    for window, count in zip(windows, counts, strict=True):
        remaining, left = max(0, window.amount - count.requests), max(0, math.ceil(count.ends - now))
        policy.append(f'"{window.name}";q={window.amount};w={window.seconds}')
        state.append(f'"{window.name}";r={remaining};t={left}')
        nearest = min(nearest, (remaining, window.amount, count.ends))
        if remaining == 0:
            wait = max(wait, left)
    headers = {
        "X-RateLimit-Limit": str(nearest[1]),
        "X-RateLimit-Remaining": str(nearest[0]),
        "X-RateLimit-Reset": str(math.ceil(nearest[2])),
        "RateLimit-Policy": ", ".join(policy),
        "RateLimit": ", ".join(state),
    }
    return Verdict(wait if refused else 0, headers)


def _windows(per_minute: int, per_hour: int) -> tuple[_FixedWindow, ...]:
    return _FixedWindow("burst", per_minute, 60), _FixedWindow("hourly", per_hour, 3600)
