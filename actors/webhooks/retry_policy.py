"""The state of a delivery after an attempt: a pure function.

Any 2xx is success. With 410 the target wants nothing more, ever. A target that can't be reached, is overloaded or
broken (no response, 408, 425, 429, 5xx) would accept the next delivery no better, so what is behind waits, and the
order is kept. One that lives and rejects this delivery (3xx, other 4xx) may accept the next one: the rejected delivery
is tried again apart from the order. `Retry-After` makes a pause longer, never shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from actors.webhooks.outbox import DELIVERED, FAILED, Waiting

JITTER = 0.1
"""How much longer than in the schedule a pause may be, or all that failed together are retried together."""
LONGEST_RETRY_AFTER = 24 * 3600.0
GONE = 410
_OVERLOADED = frozenset((408, 425, 429))

GONE_REASON = "the target answered 410: it wants nothing more"
USED_UP_REASON = "the retries of a delivery are used up, and none has succeeded since its first attempt"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a request: `status_code` None without a response; `error` None when it is delivered.

    `headers` are those of the request, with the values of the webhook's own masked. `response_time` is in milliseconds,
    `retry_after` in seconds.
    """

    headers: dict[str, str]
    status_code: int | None
    response_time: int
    body: str
    error: str | None
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The delivery as it stands now, and why the webhook is to be disabled, if it is."""

    delivery: Waiting
    disable_reason: str | None = None


def after_attempt(
    delivery: Waiting,
    outcome: Outcome,
    now: float,
    schedule: tuple[float, ...],
    once: bool,
    last_success: float | None,
    jitter: Callable[[], float],
) -> RetryDecision:
    """The attempt has ended at `now`. `once`: there is no second attempt. `jitter` returns a number from 0 to 1."""
    first = now if delivery.first_try is None else delivery.first_try
    after = replace(delivery, tries=delivery.tries + 1, first_try=first)
    if outcome.error is None:
        return RetryDecision(replace(after, status=DELIVERED))
    if outcome.status_code == GONE:
        return RetryDecision(replace(after, status=FAILED), GONE_REASON)
    if once:
        return RetryDecision(replace(after, status=FAILED))
    if after.tries > len(schedule):
        alive = last_success is not None and last_success >= first
        return RetryDecision(replace(after, status=FAILED), None if alive else USED_UP_REASON)
    pause = schedule[after.tries - 1] * (1 + JITTER * jitter())
    pause = max(pause, min(outcome.retry_after or 0.0, LONGEST_RETRY_AFTER))
    apart = after.apart or _rejects(outcome.status_code)
    return RetryDecision(replace(after, apart=apart, pause=pause, next_at=now + pause))


def _rejects(status_code: int | None) -> bool:
    """True if the target lives and rejects only this delivery."""
    return status_code is not None and 300 <= status_code < 500 and status_code not in _OVERLOADED
