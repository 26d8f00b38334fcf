"""The sender: reads from the outbox what is due, sends it in threads and stores the results.

Each webhook has two queues with at most one request each: one in order, one for what is not. So a slow or
dead target delays no other; of the threads (`webhooks.max_concurrent`) all slow ones together have half
(`actors.webhooks.queues`).
"""

from __future__ import annotations

import logging
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from actors.bus.events import new_event
from actors.bus.loop import Loop
from actors.bus.messages.events import Deliveries, DeliveryAttempt, Event, WebhookSpec, WebhookStatus, WebhookTried
from actors.log_lines import ThrottledLog
from actors.net.egress_guard import OutgoingGuard
from actors.thread_pool import ThreadPool
from actors.webhooks.outbox import DELIVERED, Outbox, Waiting
from actors.webhooks.queues import (
    DeliveryOutcome,
    DeliveryQueue,
    RetryDecision,
    Sending,
    SlotScheduler,
    TargetQueues,
    after_attempt,
)
from config.model.subscriptions import checked, matches
from config.net.names import Range

if TYPE_CHECKING:
    from config.settings.groups import WebhookSettings as Settings

log = logging.getLogger(__name__)

DISK_PAUSE = 5.0
"""Seconds that a queue waits when the outbox can't be written."""
TEST = "webhook.test"
BUG = "the request could not be made"
"""When the thread has failed; its log has the cause."""

OnTested = Callable[[WebhookTried], None]


class Sender:
    """All deliveries. `on_disabled` is called when a webhook is to be disabled, with the reason in the outbox.

    Everything is called in the loop's thread. `clock` is wall time: what is due has to outlive the process.
    """

    def __init__(
        self,
        loop: Loop,
        outbox: Outbox,
        settings: Settings,
        on_disabled: Callable[[], None],
        clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._loop = loop
        self._outbox = outbox
        self._on_disabled = on_disabled
        self._clock = clock
        self._jitter = jitter
        self._targets: dict[str, TargetQueues] | None = None
        self._tests: dict[int, OnTested | None] = {}
        """Tests by the number of their delivery; None once the result is reported and still to be stored."""
        self._under_way: set[Sending] = set()
        self._live: set[int] = set()
        """Numbers of events that were received as they happened and are not fanned out yet."""
        self._fan_out_scheduled = False
        self._closed = False
        self._slots = SlotScheduler()
        self._disk_errors = ThrottledLog(log, "deliveries wait for the disk")
        self._own: tuple[tuple[str, int], ...] = ()
        self._own_ranges: tuple[Range, ...] = ()
        self._threads = ThreadPool(loop, settings.max_concurrent)
        self.apply_settings(settings)

    @property
    def busy(self) -> bool:
        """True while a request is under way."""
        return bool(self._under_way)

    def apply_settings(self, settings: Settings) -> None:
        """For the requests to come."""
        self._settings = settings
        self._threads.resize(settings.max_concurrent)
        self._slots.slots = settings.max_concurrent
        self.set_own_addresses(self._own, self._own_ranges)

    def set_own_addresses(self, own: Sequence[tuple[str, int]], ranges: Sequence[Range] = ()) -> None:
        """The listeners of the product itself, which no webhook may reach; `ranges` are of consecutive ports."""
        self._own, self._own_ranges = tuple(own), tuple(ranges)
        excepted_by = "" if self._settings.allow_private else "webhooks.allow_private"
        self._guard = OutgoingGuard(self._own, excepted_by, self._own_ranges)

    def set_webhooks(self, webhooks: tuple[WebhookSpec, ...]) -> None:
        """Replace all webhooks. Raises `sqlite3.Error`."""
        if webhooks:
            import actors.webhooks.request  # noqa: F401  # an installation without webhooks never loads requests

        before = self._targets or {}
        self._live.clear()  # waiting events may be older than a new webhook
        self._targets = {each.id: before.get(each.id) or TargetQueues(each) for each in webhooks}
        for each in webhooks:
            self._targets[each.id].webhook = each
        self._slots.keep(set(self._targets))
        for webhook_id in {*before, *self._outbox.known()} - self._targets.keys():
            self._outbox.forget(webhook_id)
        for webhook_id, _reason, _at in self._outbox.disabled():
            if webhook_id in self._targets:
                self._targets[webhook_id].disabled = True
        for webhook_id, status in self._outbox.statuses().items():
            if webhook_id in self._targets:
                self._targets[webhook_id].last_success = status.last_success_at
        self._fan_out_soon()
        for target in self._targets.values():
            self._pump(target)

    def add(self, event: Event, live: bool = False) -> bool:
        """Store an event and deliver it; False when it is stored already. Raises `sqlite3.Error`.

        A `live` one has happened just now, so after the creation of all known webhooks, even if the clock was set back
        since. Any other one is for the webhooks that are older by the clock.
        """
        number = self._outbox.add(event)
        if number is None:
            return False
        if live and self._targets is not None:
            self._live.add(number)
        self._fan_out_soon()
        return True

    def send_test(self, webhook_id: str, on_tested: OnTested, request_id: str = "") -> bool:
        """Send `webhook.test` once, now, caused by this request; False when there is no such webhook.

        Raises `sqlite3.Error`.
        """
        target = self._target(webhook_id)
        if target is None:
            return False
        by = {"request_id": request_id} if request_id else {}
        event = new_event(TEST, checked(TEST, {"webhook_id": webhook_id, "name": target.webhook.name, **by}))
        delivery = self._outbox.add_unordered(webhook_id, event, self._clock())
        self._tests[delivery.number] = on_tested
        self._start(target, DeliveryQueue(), delivery)
        return True

    def redeliver(self, webhook_id: str, delivery_id: str) -> Deliveries:
        """Send it once more, now. Raises `sqlite3.Error`."""
        target = self._target(webhook_id)
        delivery = None if target is None else self._outbox.redeliver(webhook_id, delivery_id, self._clock())
        if target is None or delivery is None:
            return Deliveries((), 0)
        self._pump(target)
        return Deliveries((self._outbox.view(delivery),), 1)

    def statuses(self) -> dict[str, WebhookStatus]:
        """How deliveries go, by webhook. Raises `sqlite3.Error`."""
        targets = self._targets or {}
        return {
            each: replace(status, failed_requests=targets[each].failed_requests if each in targets else 0)
            for each, status in self._outbox.statuses().items()
        }

    def disable_acknowledged(self, webhook_id: str) -> None:
        """The API has disabled the webhook, or left it alone since it was changed meanwhile."""
        self._outbox.disable_acknowledged(webhook_id)
        target = self._target(webhook_id)
        if target is not None:
            target.disabled = False
            self._pump(target)

    def close(self) -> None:
        """Store no more results: what is under way will be sent again."""
        self._closed = True
        self._threads.close()

    def _target(self, webhook_id: str) -> TargetQueues | None:
        return (self._targets or {}).get(webhook_id)

    # --- from events to deliveries ---

    def _fan_out_soon(self) -> None:
        """Events that arrive together are fanned out together."""
        if not self._fan_out_scheduled and self._targets is not None:
            self._fan_out_scheduled = True
            self._loop.call_soon(self._fan_out)

    def _fan_out(self) -> None:
        self._fan_out_scheduled = False
        if self._closed:
            return
        try:
            events = self._outbox.unfanned()
            wanted = [(number, self._subscribers(event, number in self._live)) for number, event in events]
            if wanted:
                self._outbox.fan_out(wanted, self._clock())
                self._live.difference_update(number for number, _webhook_ids in wanted)
                self._fan_out_soon()
        except sqlite3.Error as error:
            self._disk_errors.error(error)
            self._loop.call_later(DISK_PAUSE, self._fan_out_soon)
            return
        for webhook_id in {each for _number, webhook_ids in wanted for each in webhook_ids}:
            self._pump((self._targets or {})[webhook_id])

    def _subscribers(self, event: Event, live: bool) -> list[str]:
        return [
            target.webhook.id
            for target in (self._targets or {}).values()
            if target.webhook.enabled
            and matches(target.webhook.events, event.type)
            and (live or event.timestamp >= target.webhook.created_at)
            and event.type != TEST
        ]

    # --- from deliveries to requests ---

    def _pump(self, target: TargetQueues) -> None:
        """Start what is due, and wait for what is due later."""
        if self._closed:
            return
        try:
            if target.webhook.enabled and not target.disabled:
                self._schedule(target, target.ordered, self._outbox.first)
            else:
                target.ordered.cancel_timer()
            self._schedule(target, target.unordered, self._outbox.first_unordered)
        except sqlite3.Error as error:
            self._disk_errors.error(error)
            self._loop.call_later(DISK_PAUSE, lambda: self._pump_again(target.webhook.id))

    def _pump_again(self, webhook_id: str) -> None:
        target = self._target(webhook_id)
        if target is not None:
            self._pump(target)

    def _schedule(self, target: TargetQueues, queue: DeliveryQueue, first: Callable[[str], Waiting | None]) -> None:
        if queue.under_way or queue.storing:
            return
        delivery = first(target.webhook.id)
        if delivery is None:
            queue.cancel_timer()
            return
        if delivery.number in self._tests or queue.scheduled == (delivery.number, delivery.next_at):
            return
        queue.cancel_timer()
        # A clock that was set back must not make a pause longer than it was meant to be.
        pause = min(delivery.next_at - self._clock(), delivery.pause)
        if pause <= 0:
            self._start(target, queue, delivery)
            return
        queue.scheduled = delivery.number, delivery.next_at
        queue.timer = self._loop.call_later(pause, lambda: self._on_retry_timer(target, queue, delivery))

    def _on_retry_timer(self, target: TargetQueues, queue: DeliveryQueue, delivery: Waiting) -> None:
        queue.cancel_timer()
        if self._target(target.webhook.id) is target and not self._closed:
            self._start(target, queue, delivery)

    def _start(self, target: TargetQueues, queue: DeliveryQueue, delivery: Waiting) -> None:
        event = self._outbox.event(delivery.event)
        queue.under_way = True
        sending = Sending(target.webhook, queue, delivery, event, self._clock(), self._loop.now)
        if delivery.number in self._tests:  # an operator waits for it
            self._send(sending)
        else:
            sending.quick = self._slots.acquire(target.webhook.id, lambda: self._send(sending))

    def _send(self, sending: Sending) -> None:
        sending.began, sending.since = self._clock(), self._loop.now
        if self._closed or self._target(sending.webhook.id) is None:
            self._loop.call_soon(lambda: self._on_sent(sending, None))  # deleted while it waited for its slot
            return
        from actors.webhooks.request import send  # see `set_webhooks`

        self._under_way.add(sending)
        work = partial(send, sending.webhook, sending.event, self._guard, self._settings.timeout)
        self._threads.submit(work, lambda outcome: self._on_sent(sending, outcome))

    def _on_sent(self, sending: Sending, outcome: DeliveryOutcome | None) -> None:
        outcome = outcome or DeliveryOutcome({}, None, 0, "", BUG)
        webhook, delivery = sending.webhook, sending.delivery
        self._under_way.discard(sending)
        sending.queue.under_way = False
        self._slots.release(webhook.id, sending.quick, self._loop.now - sending.since)
        self._report_test(delivery, outcome)
        target = self._target(webhook.id)
        if not self._closed and target is not None:
            self._decide(target, sending, outcome)
        else:
            self._tests.pop(delivery.number, None)

    def _report_test(self, delivery: Waiting, outcome: DeliveryOutcome) -> None:
        on_tested = self._tests.get(delivery.number)
        if on_tested is not None:
            self._tests[delivery.number] = None  # until it is stored, it must not be sent as a redelivery
            response_time = None if outcome.status_code is None else outcome.response_time
            on_tested(WebhookTried(outcome.error is None, outcome.status_code, response_time, outcome.error))

    # --- from requests to stored results ---

    def _decide(self, target: TargetQueues, sending: Sending, outcome: DeliveryOutcome) -> None:
        once = sending.event.type == TEST or not target.webhook.enabled
        decision = after_attempt(
            sending.delivery,
            outcome,
            self._clock(),
            self._settings.retry_schedule,
            once,
            target.last_success,
            self._jitter,
        )
        if outcome.error is None:
            target.last_success = sending.began
        else:
            target.failed_requests += 1
        attempt = _attempt(sending, outcome)
        self._store_or_wait(target, sending.queue, lambda: self._store(target, decision, attempt))

    def _store_or_wait(self, target: TargetQueues, queue: DeliveryQueue, store: Callable[[], None]) -> None:
        """Store a result, now or when the disk takes it: nothing is sent again because the disk is full."""
        if self._closed or self._target(target.webhook.id) is not target:
            return
        try:
            store()
        except sqlite3.Error as error:
            self._disk_errors.error(error)
            queue.storing = True
            self._loop.call_later(DISK_PAUSE, lambda: self._store_or_wait(target, queue, store))
            return
        self._disk_errors.recovered()
        queue.storing = False
        self._pump(target)

    def _store(self, target: TargetQueues, decision: RetryDecision, attempt: DeliveryAttempt) -> None:
        delivery = decision.delivery
        self._outbox.add_attempt(delivery, attempt)
        self._tests.pop(delivery.number, None)
        if delivery.status == DELIVERED:
            self._retry_now(target)
        reason = decision.disable_reason
        if reason is not None and not target.disabled and target.webhook.enabled:
            log.warning("webhook %s disabled: %s", target.webhook.id, reason)
            self._outbox.disable(target.webhook.id, reason, self._clock())
            target.disabled = True
            self._on_disabled()

    def _retry_now(self, target: TargetQueues) -> None:
        """The target lives: what waits for its next attempt in the order needn't wait any longer."""
        first = self._outbox.first(target.webhook.id)
        if first is not None and first.pause > 0 and not target.ordered.under_way:
            first.pause, first.next_at = 0.0, self._clock()
            self._outbox.update(first)


def _attempt(sending: Sending, outcome: DeliveryOutcome) -> DeliveryAttempt:
    """Not numbered: the outbox does that."""
    return DeliveryAttempt(
        number=0,
        timestamp=sending.began,
        url=sending.webhook.url,
        request_headers=outcome.headers,
        status_code=outcome.status_code,
        response_time=outcome.response_time,
        response_body=outcome.body,
        error=outcome.error,
    )
