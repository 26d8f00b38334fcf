"""Messages to the sender of webhooks, and its own: at its start, and when a webhook is disabled.

The sender gets a change after it is durable. One that does not run then fetches all webhooks at its start.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import merge
from itertools import islice
from typing import Any

from actors.bus.mailbox import Mailbox, Reply
from actors.bus.messages.common import WEBHOOKS, Done, Failed
from actors.bus.messages.events import (
    Deliveries,
    Delivery,
    DisableWebhook,
    FetchWebhooks,
    QueryDeliveries,
    QueryWebhookSender,
    QueryWebhookStatus,
    Redeliver,
    SendTestEvent,
    SetWebhooks,
    WebhookSenderState,
    WebhookSpec,
    WebhookStatus,
    WebhookStatuses,
    WebhookTried,
)
from api.bus_bridge import Bridge, LoopBridge, checked, reason_of, request
from api.engine.objects import Objects, Records
from api.errors import DomainError, NotFound
from api.objects.nodes.asked_nodes import AskedNodes
from api.objects.proxies.condition import Flaw, of_webhooks
from api.objects.proxies.proxy_specs import spec
from api.objects.webhooks.webhook_kind import disable
from api.store import Store, StoreError
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.webhooks import SECRET_PURPOSE, WebhookRecord, opened_headers

log = logging.getLogger(__name__)

PIECE = 500
"""Deliveries that a node is asked for at once."""
SENDER_TIMEOUT = 2.0
ASK_TIMEOUT = 5.0
REMEMBERED = 1.0
"""Seconds for which the failing webhooks are cached, since health checks may come often."""


class WebhookSender:
    """Thread-safe. Questions about one webhook raise `PeerUnavailable`."""

    def __init__(self, store: Store, records: Records[WebhookRecord], bridge: Bridge, seal: SecretBox) -> None:
        self._store = store
        self._records = records
        self._bridge = bridge
        self._seal = seal
        self._failing: list[Flaw] = []
        self._failing_at = -math.inf

    def all(self) -> Sequence[WebhookRecord]:
        """All webhooks, oldest first."""
        return [each.record for each in self._records.all()]

    def sender_config(self) -> SetWebhooks | Failed:
        """All webhooks, with their secrets, for the sender; `Failed` when a secret can't be opened."""
        revision = self._store.revision  # read first: what is found is of this revision or a later one
        try:
            return SetWebhooks(revision, tuple(map(self._spec, self.all())))
        except SecretBoxError as error:
            log.error("no webhook can be delivered to: %s", error)
            return Failed(str(error))

    def notify(self) -> None:
        """Send the sender what the store has; one that does not run fetches it at its start."""
        found = self.sender_config()
        reply = found if isinstance(found, Failed) else self._bridge.ask(WEBHOOKS, found, SENDER_TIMEOUT)
        if not isinstance(reply, Done):
            log.warning("the webhook sender gets a change later: %s", reason_of(reply))

    def statuses(self) -> dict[str, WebhookStatus]:
        """The status of deliveries by webhook id; empty when the sender doesn't reply."""
        reply = self._bridge.ask(WEBHOOKS, QueryWebhookStatus(), SENDER_TIMEOUT)
        return reply.webhooks if isinstance(reply, WebhookStatuses) else {}

    def failing(self) -> list[Flaw]:
        """The enabled webhooks whose last request failed, as of a moment ago; empty when the sender doesn't reply."""
        now = time.monotonic()
        if now - self._failing_at > REMEMBERED:
            enabled = [each for each in self.all() if each.enabled]
            self._failing = of_webhooks(enabled, self.statuses()) if enabled else []
            self._failing_at = now
        return self._failing

    def with_statuses(self) -> list[tuple[str, str, WebhookStatus]]:
        """Id, name and status of each webhook, oldest first; empty when the sender doesn't reply."""
        records = self.all()
        statuses = self.statuses() if records else {}
        nothing = WebhookStatus(0, None, None, None)
        return [(each.id, each.name, statuses.get(each.id, nothing)) for each in records] if statuses else []

    def sender_state(self) -> WebhookSenderState | None:
        """The state of the sender; None when it doesn't reply."""
        reply = self._bridge.ask(WEBHOOKS, QueryWebhookSender(), SENDER_TIMEOUT)
        return reply if isinstance(reply, WebhookSenderState) else None

    def probe(self, webhook_id: str, timeout: float, request_id: str, nodes: AskedNodes) -> dict[str, WebhookTried]:
        """By address, the outcome of `webhook.test` sent now by each node, as soon as its sender has it."""
        message = SendTestEvent(webhook_id, request_id)
        return nodes.request(self._bridge, WEBHOOKS, message, WebhookTried, timeout + ASK_TIMEOUT)

    def deliveries_here(self, page: QueryDeliveries) -> Deliveries:
        """A page of the delivery log of this machine."""
        return request(self._bridge, WEBHOOKS, page, Deliveries, timeout=ASK_TIMEOUT)

    def deliveries(self, page: QueryDeliveries, nodes: AskedNodes) -> tuple[list[tuple[str, Delivery]], int]:
        """A page of the delivery logs of these nodes, each with its address; and how many there are."""
        if not nodes.are_several:
            found = self.deliveries_here(page)
            return [(WEBHOOKS, each) for each in found.deliveries], found.total
        end = page.offset + page.limit
        first = replace(page, offset=0, limit=min(end, PIECE))
        pages = nodes.request(self._bridge, WEBHOOKS, first, Deliveries, ASK_TIMEOUT)
        logs = (self._from(nodes, to, first, each) for to, each in pages.items())
        every = merge(*logs, key=lambda each: -each[1].created_at)
        return list(islice(every, page.offset, end)), sum(each.total for each in pages.values())

    def _from(
        self, nodes: AskedNodes, to: str, asked: QueryDeliveries, page: Deliveries
    ) -> Iterator[tuple[str, Delivery]]:
        """All deliveries of a node, read as far as they are needed. Raises `PeerUnavailable` if it is this one."""
        while True:
            yield from ((to, each) for each in page.deliveries)
            if len(page.deliveries) < asked.limit:
                return
            asked = replace(asked, offset=asked.offset + len(page.deliveries), limit=PIECE)
            reply = self._bridge.ask(to, asked, ASK_TIMEOUT)
            if not isinstance(reply, Deliveries) and nodes.note(to, reply):
                return
            page = checked(to, reply, Deliveries)

    def redeliver(self, webhook_id: str, delivery_id: str, nodes: AskedNodes) -> tuple[str, Delivery]:
        """Once more: the address of what sends it, and it. Raises `NotFound`, unless a node is missing."""
        again = Redeliver(webhook_id, delivery_id)
        replies = nodes.request(self._bridge, WEBHOOKS, again, Deliveries, ASK_TIMEOUT)
        found = [(to, each) for to, reply in replies.items() for each in reply.deliveries]
        if not found:
            nodes.refuse_missing()
            raise NotFound("The delivery")
        return found[0]

    def _spec(self, record: WebhookRecord) -> WebhookSpec:
        sealed = [record.secret_sealed, *(each.sealed for each in record.previous_secrets)]
        return spec(
            WebhookSpec,
            record,
            headers=opened_headers(record.headers, self._seal),
            secrets=tuple(self._seal.open(each, SECRET_PURPOSE) for each in sealed),
            previous_until=tuple(each.until for each in record.previous_secrets),
        )


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
        except (DomainError, StoreError) as error:
            log.error("cannot disable the webhook %s: %s", message.webhook_id, error)
            outcome = Failed(str(error))
        self._bridge.call(lambda: reply(outcome))
