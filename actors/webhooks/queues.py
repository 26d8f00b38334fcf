"""What the sender keeps of a webhook: its two queues, the request that is under way for each, and what follows from it.

Which request begins now: slow targets may hold half of the slots, so that the others find one. A target is quick when
its last request ended soon. All others, new ones too, share one half of the slots and wait for each other; quick ones
may have all that are free.

The state of a delivery after an attempt: a pure function. Any 2xx is success. With 410 the target wants nothing more,
ever. A target that can't be reached, is overloaded or broken (no response, 408, 425, 429, 5xx) would accept the next
delivery no better, so what is behind waits, and the order is kept. One that lives and rejects this delivery (3xx, other
4xx) may accept the next one: the rejected delivery is tried again outside the order. `Retry-After` makes a pause
longer, never shorter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from actors.bus.loop import Timer
from actors.bus.messages.events import Event, WebhookSpec
from actors.webhooks.outbox import DELIVERED, FAILED, Waiting

JITTER = 0.1
"""How much longer than in the schedule a pause may be, or all that failed together are retried together."""
LONGEST_RETRY_AFTER = 24 * 3600.0
GONE = 410
_OVERLOADED = frozenset((408, 425, 429))
GONE_REASON = "the target answered 410: it wants nothing more"
USED_UP_REASON = "the retries of a delivery are used up, and none has succeeded since its first attempt"


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
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
    outcome: DeliveryOutcome,
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
    unordered = after.unordered or _rejects(outcome.status_code)
    return RetryDecision(replace(after, unordered=unordered, pause=pause, next_at=now + pause))


def _rejects(status_code: int | None) -> bool:
    """True if the target lives and rejects only this delivery."""
    return status_code is not None and 300 <= status_code < 500 and status_code not in _OVERLOADED


@dataclass(slots=True)
class DeliveryQueue:
    """At most one request at a time."""

    under_way: bool = False
    storing: bool = False
    """The result of the last request waits for the disk."""
    timer: Timer | None = None
    scheduled: tuple[int, float] | None = None
    """The delivery that the timer is for, by its number, and its time."""

    def cancel_timer(self) -> None:
        """Wait for nothing."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.scheduled = None


@dataclass(slots=True)
class TargetQueues:
    """A webhook. `disabled`: given up by the sender, which the API has not acknowledged yet."""

    webhook: WebhookSpec
    disabled: bool = False
    last_success: float | None = None
    failed_requests: int = 0
    ordered: DeliveryQueue = field(default_factory=DeliveryQueue)
    unordered: DeliveryQueue = field(default_factory=DeliveryQueue)


@dataclass(slots=True, eq=False)
class Sending:
    """A request from when it is due. `began` is wall time, `since` the loop's; `quick` is for `SlotScheduler`."""

    webhook: WebhookSpec
    queue: DeliveryQueue
    delivery: Waiting
    event: Event
    began: float
    since: float
    quick: bool = True


QUICK = 2.0
"""Seconds within which a request to a quick target has ended."""


class SlotScheduler:
    """Of requests that are begun by a function of no arguments. All in one thread."""

    def __init__(self) -> None:
        self._quick: set[str] = set()
        self._waiting: deque[Callable[[], None]] = deque()
        self._slow = 0
        """Slots that are in use by targets that aren't known to be quick."""
        self.slots = 1

    def acquire(self, target: str, begin: Callable[[], None]) -> bool:
        """Call `begin` now, or when there is a slot. Returns whether the target is quick, for `release`."""
        quick = target in self._quick
        if quick:
            begin()
        else:
            self._waiting.append(begin)
            self._begin_waiting()
        return quick

    def release(self, target: str, quick: bool, seconds: float) -> None:
        """A request has ended after so many seconds; `quick` is what `acquire` returned."""
        if seconds <= QUICK:
            self._quick.add(target)
        else:
            self._quick.discard(target)
        if not quick:
            self._slow -= 1
            self._begin_waiting()

    def keep(self, targets: set[str]) -> None:
        """Forget all other targets."""
        self._quick &= targets

    def _begin_waiting(self) -> None:
        while self._waiting and self._slow < max(1, self.slots // 2):
            self._slow += 1
            self._waiting.popleft()()
