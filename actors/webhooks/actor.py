"""The webhook sender's process: it hears all events and keeps them until they are delivered.

The events plane keeps nothing for who isn't there, so at its start, and now and then, it asks the supervisor for the
last events again; the outbox knows those that it has. What the webhooks are it asks the API.
"""

from __future__ import annotations

import logging
import socket
import sqlite3
import time
from collections.abc import Collection, Mapping
from typing import Any

from actors.bus.events import Subscription
from actors.bus.mailbox import Answer, refuse
from actors.bus.messages.common import API, EGRESS, SUPERVISOR, Done, Failed
from actors.bus.messages.events import Event, QueryWebhookSender, WebhookSenderState
from actors.bus.messages.webhooks import (
    Deliveries,
    DisableWebhook,
    FetchWebhooks,
    QueryDeliveries,
    QueryWebhookStatus,
    Redeliver,
    ReplayedEvents,
    ReplayEvents,
    SendTestEvent,
    SetWebhooks,
    WebhookStatuses,
)
from actors.process import Actor, Boot
from actors.throttled_log import ThrottledLog
from actors.webhooks.missed_events import MissedEvents
from actors.webhooks.outbox import Outbox
from actors.webhooks.sender import DISK_PAUSE, Sender
from config.settings.groups import Webhooks as Settings

log = logging.getLogger(__name__)

SYNC_PERIOD = 60.0
"""Seconds between questions for what may have been missed."""
SOON = 1.0
"""Seconds until the first of them is asked again, and until one that was not answered is."""
RECALL_OVERLAP = 60.0
"""Seconds that events may come late without being missed."""
START_OVERLAP = 6 * 3600.0
"""Seconds that the clock may be set back while nobody listens. Less than the outbox keeps what it knows."""
PRUNE_PERIOD = 3600.0
DAY = 86_400.0


class WebhooksActor(Actor):
    """Owner of the outbox. `boot.settings`: `webhooks`, and in `egress` the own listeners."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._settings = Settings.model_validate(boot.settings["webhooks"])
        self._outbox = Outbox(self.data_dir.webhooks)
        self._sender = Sender(self.loop, self._outbox, self._settings, self._tell_given_up)
        self._sender.keep_from(_own(boot.settings[EGRESS]))
        self._revision = -1
        self._taken = 0
        self._telling: set[str] = set()
        self._recalling = False
        self._owed = MissedEvents()
        self._disk = ThrottledLog(log, "cannot store events, requesting them again")
        self._since = max(0.0, self._outbox.newest_event() - START_OVERLAP)
        self._subscription = Subscription(
            self.loop, self.context, self.run_dir.events_out, ("events.",), self._take_event
        )
        self.ready()
        self._sync()
        self.loop.call_later(SOON, self._recall)
        self.loop.call_every(SYNC_PERIOD, self._sync)
        self.loop.call_every(PRUNE_PERIOD, self._prune)

    def receive(self, sender: str, message: Any, answer: Answer) -> None:
        """Take the configuration, and answer for deliveries."""
        try:
            self._receive(sender, message, answer)
        except sqlite3.Error as error:
            log.error("cannot handle %s: %s", type(message).__name__, error)
            answer(Failed(str(error)))

    def settings_changed(self, groups: Collection[str]) -> None:
        """See `Actor`: how events are delivered, and which targets are the product's own."""
        if EGRESS in groups:
            self._sender.keep_from(_own(self.settings[EGRESS]))
        if "webhooks" in groups:
            self._settings = Settings.model_validate(self.settings["webhooks"])
            self._sender.take_over(self._settings)

    def drain(self, seconds: float) -> None:
        """What is under way gets its time; what isn't noted by then is sent again after the next start."""
        deadline = time.monotonic() + seconds

        def look() -> None:
            if not self._sender.busy or time.monotonic() >= deadline:
                self.finish()
            else:
                self.loop.call_later(0.02, look)

        look()

    def close(self) -> None:
        """Close the outbox, too."""
        self._subscription.close()
        self._sender.close()
        super().close()
        self._outbox.close()

    def _receive(self, sender: str, message: Any, answer: Answer) -> None:
        match message:
            case SetWebhooks():
                self._set_webhooks(message)
                answer(Done())
            case SendTestEvent():
                if not self._sender.probe(message.webhook_id, answer, message.request_id):
                    answer(Failed("there is no such webhook", "webhook_id"))
            case QueryDeliveries():
                found, total = self._outbox.deliveries(
                    message.webhook_id, message.status, message.limit, message.offset
                )
                answer(Deliveries(tuple(found), total))
            case Redeliver():
                answer(self._sender.redeliver(message.webhook_id, message.delivery_id))
            case QueryWebhookStatus():
                answer(WebhookStatuses(self._sender.statuses()))
            case QueryWebhookSender():
                answer(WebhookSenderState(self._taken, self._outbox.waiting(), self._outbox.lost() + self._owed.lost))
            case _:
                refuse(sender, message, answer)

    # --- what comes from others ---

    def _take_event(self, _topic: str, message: Any) -> None:
        """One that can't be stored is asked for again, since the supervisor remembers it."""
        if isinstance(message, Event) and not self._stored(message, live=True):
            self._recall_soon()

    def _stored(self, event: Event, live: bool = False) -> bool:
        try:
            self._taken += self._sender.take(event, live)
        except sqlite3.Error as error:
            self._disk.error(error)
            self._not_stored(event)
            return False
        self._owed.stored(event.id)
        self._disk.recovered()
        return True

    def _not_stored(self, event: Event) -> None:
        self._since = min(self._since, event.timestamp - RECALL_OVERLAP)
        try:
            known = self._outbox.has(event.id)
        except sqlite3.Error:  # said already: it is the same disk
            known = False
        if not known:
            self._owed.add(event.id)

    def _recall_soon(self) -> None:
        if not self._recalling:
            self._recalling = True
            self.loop.call_later(DISK_PAUSE, self._recall)

    def _set_webhooks(self, message: SetWebhooks) -> None:
        if message.revision < self._revision:
            return
        changed = self._revision < message.revision
        self._revision = message.revision
        if changed:
            self._sender.set_webhooks(message.webhooks)
            self._tell_given_up()

    def _sync(self) -> None:
        self._since = min(self._since, time.time() - RECALL_OVERLAP)  # the clock may have been set back
        self._recall()
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

    def _recall(self) -> None:
        self._recalling = False
        owed = self._owed.asked_for()
        self.mailbox.ask(SUPERVISOR, ReplayEvents(self._since), lambda reply: self._recalled(reply, owed))

    def _recalled(self, reply: Any, owed: frozenset[str]) -> None:
        if isinstance(reply, ReplayedEvents):
            for event in reply.events:
                if not self._stored(event):
                    self._recall_soon()
                    return
                self._since = max(self._since, event.timestamp - RECALL_OVERLAP)
            self._owed.settle(owed)
            self._note_lost()

    def _note_lost(self) -> None:
        """Say it when it is over, and once."""
        lost = self._owed.lost
        if lost == 0:
            return
        try:
            self._outbox.note_lost(lost)
        except sqlite3.Error as error:
            self._disk.error(error)
            self._recall_soon()
            return
        self._owed.lost = 0
        log.error("lost %d events: the disk was full until the supervisor had dropped them", lost)

    # --- webhooks that are given up ---

    def _tell_given_up(self) -> None:
        """Tell the API until it has taken note: what was given up must not be tried after the next start."""
        for webhook_id, reason, at in self._outbox.given_up():
            if webhook_id not in self._telling:
                self._telling.add(webhook_id)
                self.mailbox.ask(API, DisableWebhook(webhook_id, reason, at), self._told(webhook_id))

    def _told(self, webhook_id: str) -> Any:
        def told(reply: Any) -> None:
            self._telling.discard(webhook_id)
            try:
                if isinstance(reply, Done):
                    self._sender.heard_of(webhook_id)
                    return
            except sqlite3.Error as error:
                log.error("webhook %s: %s", webhook_id, error)
            self.loop.call_later(SOON, self._tell_given_up)

        return told

    def _prune(self) -> None:
        try:
            self._outbox.prune(time.time() - self._settings.retention_days * DAY)
        except sqlite3.Error as error:
            log.error("cannot prune old deliveries: %s", error)


def _own(group: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The addresses of the product's own listeners."""
    return [(str(host), int(port)) for host, port in group.get("own", ())]
