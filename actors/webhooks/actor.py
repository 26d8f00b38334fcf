"""The webhook sender's process: it receives all events and keeps them until they are delivered.

The events plane keeps nothing for a subscriber that isn't there, so at its start, and now and then, it has the
supervisor replay the last events; the outbox recognizes those that it has. The webhooks it fetches from the API.
"""

from __future__ import annotations

import logging
import socket
import sqlite3
import time
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from actors.bus.events import Subscription
from actors.bus.mailbox import Reply, refuse
from actors.bus.messages.common import API, EGRESS, SUPERVISOR, Done, Failed
from actors.bus.messages.events import (
    Deliveries,
    DisableWebhook,
    Event,
    FetchWebhooks,
    QueryDeliveries,
    QueryWebhookSender,
    QueryWebhookStatus,
    Redeliver,
    ReplayedEvents,
    ReplayEvents,
    SendTestEvent,
    SetWebhooks,
    WebhookSenderState,
    WebhookStatuses,
)
from actors.log_lines import ThrottledLog
from actors.net.egress_guard import own_addresses
from actors.process import Actor, Boot, view
from actors.webhooks.outbox import MissedEvents, Outbox
from actors.webhooks.sender import DISK_PAUSE, Sender

if TYPE_CHECKING:
    from config.settings.groups import WebhookSettings as Settings

log = logging.getLogger(__name__)

SYNC_PERIOD = 60.0
"""Seconds between two replays, and two fetches of the webhooks."""
SOON = 1.0
"""Seconds until the second replay, and until a request without a reply is repeated."""
REPLAY_OVERLAP = 60.0
"""Seconds that events may come late without being missed."""
START_OVERLAP = 6 * 3600.0
"""Seconds that the clock may be set back while no sender runs. Less than the outbox keeps its events."""
PRUNE_PERIOD = 3600.0
DAY = 86_400.0


class WebhooksActor(Actor):
    """Owner of the outbox. `boot.settings`: `webhooks`, and in `egress` the own listeners."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._settings: Settings = view(boot.settings["webhooks"])
        self._outbox = Outbox(self.data_dir.webhooks)
        self._sender = Sender(self.loop, self._outbox, self._settings, self._report_disabled)
        self._sender.set_own_addresses(*own_addresses(boot.settings[EGRESS]))
        self._revision = -1
        self._taken = 0
        self._disabling: set[str] = set()
        self._replay_scheduled = False
        self._missed = MissedEvents()
        self._disk_errors = ThrottledLog(log, "cannot store events, requesting them again")
        self._since = max(0.0, self._outbox.newest_event() - START_OVERLAP)
        self._subscription = Subscription(
            self.loop, self.context, self.run_dir.events_out, ("events.",), self._on_event
        )
        self.ready()
        self._sync()
        self.loop.call_later(SOON, self._replay)
        self.loop.call_every(SYNC_PERIOD, self._sync)
        self.loop.call_every(PRUNE_PERIOD, self._prune)

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """Apply the webhooks, and answer queries for deliveries."""
        try:
            self._receive(sender, message, reply)
        except sqlite3.Error as error:
            log.error("cannot handle %s: %s", type(message).__name__, error)
            reply(Failed(str(error)))

    def settings_changed(self, groups: Collection[str]) -> None:
        """See `Actor`: how events are delivered, and the listeners of the product itself."""
        if EGRESS in groups:
            self._sender.set_own_addresses(*own_addresses(self.settings[EGRESS]))
        if "webhooks" in groups:
            self._settings = view(self.settings["webhooks"])
            self._sender.apply_settings(self._settings)

    def drain(self, seconds: float) -> None:
        """Requests under way get this time; those without a stored result are sent again after the next start."""
        deadline = time.monotonic() + seconds

        def check() -> None:
            if not self._sender.busy or time.monotonic() >= deadline:
                self.finish()
            else:
                self.loop.call_later(0.02, check)

        check()

    def close(self) -> None:
        """Close the outbox, too."""
        self._subscription.close()
        self._sender.close()
        super().close()
        self._outbox.close()

    def _receive(self, sender: str, message: Any, reply: Reply) -> None:
        match message:
            case SetWebhooks():
                self._set_webhooks(message)
                reply(Done())
            case SendTestEvent():
                if not self._sender.send_test(message.webhook_id, reply, message.request_id):
                    reply(Failed("there is no such webhook", "webhook_id"))
            case QueryDeliveries():
                found, total = self._outbox.deliveries(
                    message.webhook_id, message.status, message.limit, message.offset
                )
                reply(Deliveries(tuple(found), total))
            case Redeliver():
                reply(self._sender.redeliver(message.webhook_id, message.delivery_id))
            case QueryWebhookStatus():
                reply(WebhookStatuses(self._sender.statuses()))
            case QueryWebhookSender():
                reply(WebhookSenderState(self._taken, self._outbox.waiting(), self._outbox.lost() + self._missed.lost))
            case _:
                refuse(sender, message, reply)

    # --- events ---

    def _on_event(self, _topic: str, message: Any) -> None:
        """One that can't be stored is replayed later, since the supervisor remembers it."""
        if isinstance(message, Event) and not self._stored(message, live=True):
            self._replay_soon()

    def _stored(self, event: Event, live: bool = False) -> bool:
        try:
            self._taken += self._sender.add(event, live)
        except sqlite3.Error as error:
            self._disk_errors.error(error)
            self._not_stored(event)
            return False
        self._missed.stored(event.id)
        self._disk_errors.recovered()
        return True

    def _not_stored(self, event: Event) -> None:
        self._since = min(self._since, event.timestamp - REPLAY_OVERLAP)
        try:
            known = self._outbox.has(event.id)
        except sqlite3.Error:  # logged already: it is the same disk
            known = False
        if not known:
            self._missed.add(event.id)

    def _replay_soon(self) -> None:
        if not self._replay_scheduled:
            self._replay_scheduled = True
            self.loop.call_later(DISK_PAUSE, self._replay)

    def _set_webhooks(self, message: SetWebhooks) -> None:
        if message.revision < self._revision:
            return
        changed = self._revision < message.revision
        self._revision = message.revision
        if changed:
            self._sender.set_webhooks(message.webhooks)
            self._report_disabled()

    def _sync(self) -> None:
        self._since = min(self._since, time.time() - REPLAY_OVERLAP)  # the clock may have been set back
        self._replay()
        self.mailbox.ask(API, FetchWebhooks(), self._fetched)

    def _fetched(self, reply: Any) -> None:
        if isinstance(reply, SetWebhooks):
            try:
                self._set_webhooks(reply)
            except sqlite3.Error as error:
                log.error("cannot apply the webhooks: %s", error)
                self._revision = -1
        elif self._revision < 0:
            self.loop.call_later(SOON, lambda: self.mailbox.ask(API, FetchWebhooks(), self._fetched))

    def _replay(self) -> None:
        self._replay_scheduled = False
        missing = self._missed.missing()
        self.mailbox.ask(SUPERVISOR, ReplayEvents(self._since), lambda reply: self._replayed(reply, missing))

    def _replayed(self, reply: Any, missing: frozenset[str]) -> None:
        if isinstance(reply, ReplayedEvents):
            for event in reply.events:
                if not self._stored(event):
                    self._replay_soon()
                    return
                self._since = max(self._since, event.timestamp - REPLAY_OVERLAP)
            self._missed.settle(missing)
            self._count_lost()

    def _count_lost(self) -> None:
        """Log and store how many were lost, once, when the disk takes it."""
        lost = self._missed.lost
        if lost == 0:
            return
        try:
            self._outbox.count_lost(lost)
        except sqlite3.Error as error:
            self._disk_errors.error(error)
            self._replay_soon()
            return
        self._missed.lost = 0
        log.error("lost %d events: the disk was full until the supervisor had dropped them", lost)

    # --- webhooks that the sender disables ---

    def _report_disabled(self) -> None:
        """Report to the API until it acknowledges: a disabled webhook must not be tried after the next start."""
        for webhook_id, reason, at in self._outbox.disabled():
            if webhook_id not in self._disabling:
                self._disabling.add(webhook_id)
                self.mailbox.ask(API, DisableWebhook(webhook_id, reason, at), partial(self._on_disabled, webhook_id))

    def _on_disabled(self, webhook_id: str, reply: Any) -> None:
        self._disabling.discard(webhook_id)
        try:
            if isinstance(reply, Done):
                self._sender.disable_acknowledged(webhook_id)
                return
        except sqlite3.Error as error:
            log.error("webhook %s: %s", webhook_id, error)
        self.loop.call_later(SOON, self._report_disabled)

    def _prune(self) -> None:
        try:
            self._outbox.prune(time.time() - self._settings.retention_days * DAY)
        except sqlite3.Error as error:
            log.error("cannot prune old deliveries: %s", error)
