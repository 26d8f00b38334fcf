"""What becomes of a delivery after an attempt: a pure function.

Any 2xx is success. 410 says that the target wants nothing more, ever. A target that can't be reached, is overloaded or
broken (no answer, 408, 425, 429, 5xx) would take the next delivery no better, so what is behind waits, and the order is
kept. One that lives and refuses this delivery (3xx, other 4xx) may take the next one: the refused delivery is tried
again apart from the order. `Retry-After` makes a pause longer, never shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from actors.webhooks.outbox import DELIVERED, FAILED, Waiting

JITTER = 0.1
"""How much longer than in the schedule a pause may be; else all that failed together come back together."""
LONGEST_RETRY_AFTER = 24 * 3600.0
GONE = 410
_OVERLOADED = frozenset((408, 425, 429))

GONE_REASON = "the target answered 410: it wants nothing more"
USED_UP_REASON = "the retries of a delivery are used up, and none has succeeded since its first attempt"


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The delivery as it stands now, and why the webhook is to be disabled, if it is."""

    delivery: Waiting
    give_up: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """An attempt that has ended at `now`. `status_code` None means no answer."""

    now: float
    delivered: bool
    status_code: int | None
    retry_after: float | None


def after_attempt(
    delivery: Waiting,
    tried: AttemptResult,
    schedule: tuple[float, ...],
    once: bool,
    last_success: float | None,
    jitter: Callable[[], float],
) -> RetryDecision:
    """`once`: there is no second attempt. `jitter` gives a number from 0 to 1."""
    first = tried.now if delivery.first_try is None else delivery.first_try
    after = replace(delivery, tries=delivery.tries + 1, first_try=first)
    if tried.delivered:
        return RetryDecision(replace(after, status=DELIVERED))
    if tried.status_code == GONE:
        return RetryDecision(replace(after, status=FAILED), GONE_REASON)
    if once:
        return RetryDecision(replace(after, status=FAILED))
    if after.tries > len(schedule):
        alive = last_success is not None and last_success >= first
        return RetryDecision(replace(after, status=FAILED), None if alive else USED_UP_REASON)
    pause = schedule[after.tries - 1] * (1 + JITTER * jitter())
    pause = max(pause, min(tried.retry_after or 0.0, LONGEST_RETRY_AFTER))
    apart = after.apart or refuses(tried.status_code)
    return RetryDecision(replace(after, apart=apart, pause=pause, next_at=tried.now + pause))


def refuses(status_code: int | None) -> bool:
    """Does the target live, and refuse this delivery alone?"""
    return status_code is not None and 300 <= status_code < 500 and status_code not in _OVERLOADED
