"""The sender: takes from the outbox what is due, sends it in threads, notes how it went.

Each webhook has two lanes with at most one request each: one in order, one for what is apart from it. So a slow or dead
target holds up nobody but itself; of the threads (`webhooks.max_concurrent`) all slow ones together have half
(`actors.webhooks.slot_scheduler`).
"""

from __future__ import annotations

import logging
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from actors.bus.events import new_event
from actors.bus.loop import Loop
from actors.bus.messages.events import Event
from actors.bus.messages.webhooks import Deliveries, DeliveryAttempt, WebhookSpec, WebhookStatus, WebhookTried
from actors.net.own_requests import OutgoingGuard
from actors.thread_pool import ThreadPool
from actors.throttled_log import ThrottledLog
from actors.webhooks.outbox import DELIVERED, Outbox, Waiting
from actors.webhooks.queues import DeliveryQueue, Sending, Target
from actors.webhooks.retry_policy import AttemptResult, after_attempt
from actors.webhooks.slot_scheduler import SlotScheduler
from config.model.events import checked
from config.model.webhooks import matches
from config.settings.groups import Webhooks as Settings

if TYPE_CHECKING:
    from actors.webhooks.request import Outcome, Request

log = logging.getLogger(__name__)

LOOK_PERIOD = 0.2
"""Seconds between looks at whether the time of requests under way is over."""
DISK_PAUSE = 5.0
"""Seconds that a lane rests when the outbox can't be written."""
TEST = "webhook.test"
BUG = "the request could not be made"

OnProbed = Callable[[WebhookTried], None]


class Sender:
    """All deliveries. `on_given_up` is called when a webhook is to be disabled, with the reason in the outbox.

    Everything is called in the loop's thread. `clock` is wall time: what is due has to outlive the process.
    """

    def __init__(
        self,
        loop: Loop,
        outbox: Outbox,
        settings: Settings,
        on_given_up: Callable[[], None],
        clock: Callable[[], float] = time.time,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._loop = loop
        self._outbox = outbox
        self._on_given_up = on_given_up
        self._clock = clock
        self._jitter = jitter
        self._targets: dict[str, Target] | None = None
        self._probes: dict[int, OnProbed] = {}
        self._under_way: set[Request] = set()
        self._live: set[int] = set()
        """Numbers of events that were heard as they happened and are not fanned out yet."""
        self._fanning = False
        self._closed = False
        self._turns = SlotScheduler()
        self._disk = ThrottledLog(log, "deliveries wait for the disk")
        self._own: tuple[tuple[str, int], ...] = ()
        self._workers = ThreadPool(loop, settings.max_concurrent)
        self.take_over(settings)

    @property
    def busy(self) -> bool:
        """Is a request under way?"""
        return bool(self._under_way)

    def take_over(self, settings: Settings) -> None:
        """The settings are others, for the requests to come."""
        self._settings = settings
        self._workers.resize(settings.max_concurrent)
        self._turns.places = settings.max_concurrent
        self.keep_from(self._own)

    def keep_from(self, own: Sequence[tuple[str, int]]) -> None:
        """The product itself listens at these addresses, which no webhook reaches from now on."""
        self._own = tuple(own)
        excepted_by = "" if self._settings.allow_private else "webhooks.allow_private"
        self._guard = OutgoingGuard(self._own, excepted_by)

    def set_webhooks(self, webhooks: tuple[WebhookSpec, ...]) -> None:
        """These are the webhooks from now on."""
        if webhooks:
            import actors.webhooks.request  # noqa: F401  # an installation without webhooks does without requests

        before = self._targets or {}
        self._live.clear()  # what waits may be older than a webhook that is new
        self._targets = {each.id: before.get(each.id) or Target(each) for each in webhooks}
        for each in webhooks:
            self._targets[each.id].webhook = each
        self._turns.keep(set(self._targets))
        for webhook_id in {*before, *self._outbox.known()} - self._targets.keys():
            self._outbox.forget(webhook_id)
        for webhook_id, _reason, _at in self._outbox.given_up():
            if webhook_id in self._targets:
                self._targets[webhook_id].given_up = True
        for webhook_id, status in self._outbox.statuses().items():
            if webhook_id in self._targets:
                self._targets[webhook_id].last_success = status.last_success_at
        self._fan_out_soon()
        for target in self._targets.values():
            self._pump(target)

    def take(self, event: Event, live: bool = False) -> bool:
        """Store an event and deliver it; False when it was taken before. Raises `sqlite3.Error`.

        A `live` one has happened just now, so after the webhooks were made that are known, whatever the clock says that
        somebody may have set back. Any other one is for those that are older by the clock.
        """
        number = self._outbox.take(event)
        if number is None:
            return False
        if live and self._targets is not None:
            self._live.add(number)
        self._fan_out_soon()
        return True

    def probe(self, webhook_id: str, on_probed: OnProbed, request_id: str = "") -> bool:
        """Send `webhook.test` once, now, caused by this request; False when there is no such webhook.

        Raises `sqlite3.Error`.
        """
        target = (self._targets or {}).get(webhook_id)
        if target is None:
            return False
        by = {"request_id": request_id} if request_id else {}
        event = new_event(TEST, checked(TEST, {"webhook_id": webhook_id, "name": target.webhook.name, **by}))
        delivery = self._outbox.add_apart(webhook_id, event, self._clock())
        self._probes[delivery.number] = on_probed
        self._start(target, DeliveryQueue(), delivery)
        return True

    def redeliver(self, webhook_id: str, delivery_id: str) -> Deliveries:
        """Send it once more, now. Raises `sqlite3.Error`."""
        target = (self._targets or {}).get(webhook_id)
        delivery = None if target is None else self._outbox.again(webhook_id, delivery_id, self._clock())
        if target is None or delivery is None:
            return Deliveries((), 0)
        self._pump(target)
        return Deliveries((self._outbox.told(delivery),), 1)

    def statuses(self) -> dict[str, WebhookStatus]:
        """How deliveries go, by webhook. Raises `sqlite3.Error`."""
        targets = self._targets or {}
        return {
            each: replace(status, failed_requests=targets[each].failed_requests if each in targets else 0)
            for each, status in self._outbox.statuses().items()
        }

    def heard_of(self, webhook_id: str) -> None:
        """The API knows that the webhook was given up, and has disabled it or knows better."""
        self._outbox.taken_note(webhook_id)
        target = (self._targets or {}).get(webhook_id)
        if target is not None:
            target.given_up = False
            self._pump(target)

    def close(self) -> None:
        """Note nothing more: what is under way will be sent again."""
        self._closed = True
        self._workers.close()

    # --- from events to deliveries ---

    def _fan_out_soon(self) -> None:
        """Events that arrive together are fanned out together."""
        if not self._fanning and self._targets is not None:
            self._fanning = True
            self._loop.call_soon(self._fan_out)

    def _fan_out(self) -> None:
        self._fanning = False
        if self._closed:
            return
        try:
            events = self._outbox.unfanned()
            wanted = [(number, self._takers(event, number in self._live)) for number, event in events]
            if wanted:
                self._outbox.fan_out(wanted, self._clock())
                self._live.difference_update(number for number, _takers in wanted)
                self._fan_out_soon()
        except sqlite3.Error as error:
            self._disk.error(error)
            self._loop.call_later(DISK_PAUSE, self._fan_out_soon)
            return
        for webhook_id in {each for _number, takers in wanted for each in takers}:
            self._pump((self._targets or {})[webhook_id])

    def _takers(self, event: Event, live: bool) -> list[str]:
        return [
            target.webhook.id
            for target in (self._targets or {}).values()
            if target.webhook.enabled
            and matches(target.webhook.events, event.type)
            and (live or event.timestamp >= target.webhook.created_at)
            and event.type != TEST
        ]

    # --- from deliveries to requests ---

    def _pump(self, target: Target) -> None:
        """Start what is due, and wait for what is due later."""
        if self._closed:
            return
        try:
            if target.webhook.enabled and not target.given_up:
                self._run(target, target.ordered, self._outbox.first)
            else:
                target.ordered.rest()
            self._run(target, target.apart, self._outbox.first_apart)
        except sqlite3.Error as error:
            self._disk.error(error)
            self._loop.call_later(DISK_PAUSE, lambda: self._pump_again(target.webhook.id))

    def _pump_again(self, webhook_id: str) -> None:
        target = (self._targets or {}).get(webhook_id)
        if target is not None:
            self._pump(target)

    def _run(self, target: Target, lane: DeliveryQueue, next_one: Callable[[str], Waiting | None]) -> None:
        if lane.under_way is not None or lane.noting:
            return
        delivery = next_one(target.webhook.id)
        if delivery is None:
            lane.rest()
            return
        if delivery.number in self._probes or lane.waits_for == (delivery.number, delivery.next_at):
            return
        lane.rest()
        # A clock that was set back must not make a pause longer than it was meant to be.
        pause = min(delivery.next_at - self._clock(), delivery.pause)
        if pause <= 0:
            self._start(target, lane, delivery)
            return
        lane.waits_for = delivery.number, delivery.next_at
        lane.timer = self._loop.call_later(pause, lambda: self._due(target, lane, delivery))

    def _due(self, target: Target, lane: DeliveryQueue, delivery: Waiting) -> None:
        lane.rest()
        if self._targets is not None and self._targets.get(target.webhook.id) is target and not self._closed:
            self._start(target, lane, delivery)

    def _start(self, target: Target, lane: DeliveryQueue, delivery: Waiting) -> None:
        from actors.webhooks.request import Request  # see `set_webhooks`

        event = self._outbox.event(delivery.event)
        request = Request(target.webhook, event, self._guard, self._settings.timeout)
        lane.under_way = request
        sending = Sending(target.webhook, lane, delivery, event, request, self._clock(), self._loop.now)
        if delivery.number in self._probes:  # somebody waits for it
            self._begin(sending)
        else:
            sending.quick = self._turns.take(target.webhook.id, lambda: self._begin(sending))

    def _begin(self, sending: Sending) -> None:
        sending.began, sending.since = self._clock(), self._loop.now
        if self._closed or sending.webhook.id not in (self._targets or {}):
            self._loop.call_soon(lambda: self._ended(sending, None))  # deleted while it waited for its turn
            return
        if not self._under_way:
            self._loop.call_later(LOOK_PERIOD, self._look)
        self._under_way.add(sending.request)
        self._workers.submit(sending.request.send, lambda outcome: self._ended(sending, outcome))

    def _ended(self, sending: Sending, outcome: Outcome | None) -> None:
        webhook, lane, delivery = sending.webhook, sending.lane, sending.delivery
        self._under_way.discard(sending.request)
        lane.under_way = None
        self._turns.over(webhook.id, sending.quick, self._loop.now - sending.since)
        attempt = _attempt(webhook, sending.began, outcome)
        if not self._closed and self._targets is not None and webhook.id in self._targets:
            self._done(self._targets[webhook.id], lane, delivery, sending.event, attempt, outcome)
        elif delivery.number in self._probes:
            self._probed(delivery, attempt)
            self._probes.pop(delivery.number, None)

    def _look(self) -> None:
        for request in self._under_way:
            request.look()
        if self._under_way:
            self._loop.call_later(LOOK_PERIOD, self._look)

    # --- from requests to what is noted ---

    def _done(
        self,
        target: Target,
        lane: DeliveryQueue,
        delivery: Waiting,
        event: Event,
        attempt: DeliveryAttempt,
        outcome: Outcome | None,
    ) -> None:
        now = self._clock()
        delivered = outcome is not None and outcome.delivered
        tried = AttemptResult(now, delivered, attempt.status_code, outcome.retry_after if outcome else None)
        once = event.type == TEST or not target.webhook.enabled
        decision = after_attempt(
            delivery, tried, self._settings.retry_schedule, once, target.last_success, self._jitter
        )
        if delivered:
            target.last_success = attempt.timestamp
        else:
            target.failed_requests += 1
        self._probed(delivery, attempt)
        self._settle(target, lane, lambda: self._note(target, delivery, decision.delivery, attempt, decision.give_up))

    def _settle(self, target: Target, lane: DeliveryQueue, note: Callable[[], None]) -> None:
        """Note what came of a request, now or when the disk takes it: nothing is sent again because it is full."""
        if self._closed or (self._targets or {}).get(target.webhook.id) is not target:
            return
        try:
            note()
        except sqlite3.Error as error:
            self._disk.error(error)
            lane.noting = True
            self._loop.call_later(DISK_PAUSE, lambda: self._settle(target, lane, note))
            return
        self._disk.recovered()
        lane.noting = False
        self._pump(target)

    def _note(
        self, target: Target, before: Waiting, after: Waiting, attempt: DeliveryAttempt, give_up: str | None
    ) -> None:
        number = self._outbox.attempts_of(before) + 1
        self._outbox.note(after, DeliveryAttempt(number, *_behind_number(attempt)))
        self._probes.pop(before.number, None)
        if after.status == DELIVERED:
            self._hurry(target)
        if give_up is not None and not target.given_up and target.webhook.enabled:
            log.warning("webhook %s disabled: %s", target.webhook.id, give_up)
            self._outbox.give_up(target.webhook.id, give_up, self._clock())
            target.given_up = True
            self._on_given_up()

    def _hurry(self, target: Target) -> None:
        """The target lives: what waits for its next attempt in the order needn't wait any longer."""
        first = self._outbox.first(target.webhook.id)
        if first is not None and first.pause > 0 and target.ordered.under_way is None:
            first.pause, first.next_at = 0.0, self._clock()
            self._outbox.set_next(first)

    def _probed(self, delivery: Waiting, attempt: DeliveryAttempt) -> None:
        on_probed = self._probes.get(delivery.number)
        if on_probed is not None:
            self._probes[delivery.number] = _told  # until it is noted, it isn't to be sent by anybody else
            answered = None if attempt.status_code is None else attempt.response_time
            on_probed(WebhookTried(attempt.error is None, attempt.status_code, answered, attempt.error))


def _told(_probed: WebhookTried) -> None:
    """Whoever asked for the test has its answer."""


def _attempt(webhook: WebhookSpec, began: float, outcome: Outcome | None) -> DeliveryAttempt:
    """Not numbered yet. Without an outcome the thread has failed, which its log tells more of."""
    if outcome is None:
        return DeliveryAttempt(0, began, webhook.url, {}, None, 0, "", BUG)
    return DeliveryAttempt(
        0,
        began,
        webhook.url,
        outcome.headers,
        outcome.status_code,
        outcome.response_time,
        outcome.body,
        outcome.error,
    )


def _behind_number(attempt: DeliveryAttempt) -> tuple[float, str, dict[str, str], int | None, int, str, str | None]:
    return (
        attempt.timestamp,
        attempt.url,
        attempt.request_headers,
        attempt.status_code,
        attempt.response_time,
        attempt.response_body,
        attempt.error,
    )
