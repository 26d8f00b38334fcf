"""The webhook sender's process: it hears all events and keeps them until they are delivered."""

from __future__ import annotations

import logging
import socket
import sqlite3
from typing import Any

from actors.bus.events import Subscription
from actors.bus.mailbox import Answer, refuse
from actors.bus.messages import Event, QuerySender, SenderState
from actors.process import Actor, Boot
from actors.webhooks.outbox import Outbox

log = logging.getLogger(__name__)


class WebhooksActor(Actor):
    """Owner of the outbox."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._outbox = Outbox(self.data_dir.webhooks)
        self._taken = 0
        self._subscription = Subscription(
            self.loop, self.context, self.run_dir.events_out, ("events.",), self._take_event
        )
        self.ready()

    def receive(self, sender: str, message: Any, answer: Answer) -> None:
        """Say how the outbox is."""
        if isinstance(message, QuerySender):
            answer(SenderState(self._taken, self._outbox.waiting()))
        else:
            refuse(sender, message, answer)

    def close(self) -> None:
        """Close the outbox, too."""
        self._subscription.close()
        super().close()
        self._outbox.close()

    def _take_event(self, _topic: str, message: Any) -> None:
        if not isinstance(message, Event):
            return
        try:
            self._taken += self._outbox.take(message)
        except sqlite3.Error as error:
            log.error("event %s (%s) is lost: %s", message.id, message.type, error)
