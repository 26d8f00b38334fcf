"""Messages between the webhook sender and the API: at their starts, and when a webhook is disabled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from actors.bus.mailbox import Mailbox, Reply
from actors.bus.messages.common import WEBHOOKS, Done, Failed
from actors.bus.messages.events import DisableWebhook, FetchWebhooks
from api.bus_bridge import LoopBridge
from api.engine.objects import Objects
from api.errors import DomainError
from api.objects.webhooks.changes import disable
from api.objects.webhooks.sender import WebhookSender
from config.model.webhooks import WebhookRecord

log = logging.getLogger(__name__)


class WebhookLink:
    """Used by the loop thread of the API's process."""

    def __init__(
        self,
        webhooks: Objects[WebhookRecord],
        sender: WebhookSender,
        publish: Callable[[str, dict[str, Any]], None],
        mailbox: Mailbox,
        bridge: LoopBridge,
    ) -> None:
        self._webhooks = webhooks
        self._sender = sender
        self._publish = publish
        self._mailbox = mailbox
        self._bridge = bridge

    def send_webhooks(self) -> None:
        """Send all webhooks at the API's start. A sender that does not run yet fetches them at its own start."""
        found = self._sender.sender_config()
        if not isinstance(found, Failed):
            self._mailbox.tell(WEBHOOKS, found)

    def receive(self, message: Any, reply: Reply) -> bool:
        """Take a message of the sender; False when it is none."""
        if isinstance(message, FetchWebhooks):
            reply(self._sender.sender_config())
        elif isinstance(message, DisableWebhook):
            # Changing the store waits for the disk and asks the bus, which the loop's own thread must not do.
            threading.Thread(target=self._disable, args=(message, reply), name="disable-webhook", daemon=True).start()
        else:
            return False
        return True

    def _disable(self, message: DisableWebhook, reply: Reply) -> None:
        outcome: Done | Failed = Done()
        try:
            disable(self._webhooks, self._publish, message.webhook_id, message.reason, message.before)
        except DomainError as error:
            log.error("cannot disable the webhook %s: %s", message.webhook_id, error)
            outcome = Failed(str(error))
        self._bridge.call(lambda: reply(outcome))
