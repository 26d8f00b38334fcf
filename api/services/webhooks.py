"""Changes of webhooks, their views, and what the sender gets of them.

The sender gets a change after it is durable. One that does not run then fetches all webhooks at its start.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from actors.bus.messages.common import WEBHOOKS, Done
from actors.bus.messages.events import QueryWebhookSender, WebhookSenderState
from actors.bus.messages.webhooks import (
    Deliveries,
    QueryDeliveries,
    QueryWebhookStatus,
    Redeliver,
    SendTestEvent,
    SetWebhooks,
    WebhookSpec,
    WebhookStatus,
    WebhookStatuses,
    WebhookTried,
)
from api.audit.context import on_behalf_of
from api.bus_bridge import Bridge, reason_of, request
from api.errors import Invalid, NotFound, StaleRevision
from api.services.condition import Flaw, of_webhooks
from api.services.proxy_specs import spec
from api.store import Document, NotStored, RevisionConflict, Store, StoreWriteError
from api.store.records import is_same
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.webhooks import (
    SECRET_PURPOSE,
    PreviousSecret,
    WebhookCreate,
    WebhookRecord,
    WebhookUpdate,
    new_secret,
    opened_headers,
    sealed_headers,
)

log = logging.getLogger(__name__)

COLLECTION = "webhooks"
MAX_WEBHOOKS = 1_000
PREVIOUS_SECRET_FOR = 24 * 3600.0
"""Seconds that the older secret is signed with beside the new one."""
MAX_PREVIOUS_SECRETS = 3
SENDER_TIMEOUT = 2.0
ASK_TIMEOUT = 5.0
REMEMBERED = 1.0
"""Seconds for which the failing webhooks are cached, since health checks may come often."""


@dataclass(frozen=True, slots=True)
class StoredWebhook:
    """A record, its revision, and its headers in the clear."""

    record: WebhookRecord
    revision: int
    headers: dict[str, str]


class Webhooks:
    """Reads and changes. Thread-safe.

    Changes raise `Invalid`, `NotFound`, `StaleRevision` and `StoreWriteError`; questions to the sender raise
    `PeerUnavailable`.
    """

    def __init__(
        self, store: Store, bridge: Bridge, publish: Callable[[str, dict[str, Any]], None], seal: SecretBox
    ) -> None:
        self._store = store
        self._bridge = bridge
        self._publish = publish
        self._seal = seal
        self._lock = threading.Lock()
        self._failing: list[Flaw] = []
        self._failing_at = -math.inf

    def lock(self) -> AbstractContextManager[Any]:
        """Holds up all changes of webhooks."""
        return self._lock

    # --- reading ---

    def all(self) -> list[StoredWebhook]:
        """All of them, oldest first."""
        found = [self._load(document) for document in self._store.find(COLLECTION)]
        return sorted(found, key=lambda webhook: (webhook.record.created_at, webhook.record.id))

    def get(self, webhook_id: str) -> StoredWebhook:
        """One of them. Raises `NotFound`."""
        document = self._store.get(COLLECTION, webhook_id)
        if document is None:
            raise NotFound("The webhook")
        return self._load(document)

    def sender_config(self) -> SetWebhooks:
        """All webhooks, with their secrets, for the sender. Raises `SecretBoxError`."""
        revision = self._store.revision  # read first: what is found is of this revision or a later one
        documents = self._store.find(COLLECTION)
        return SetWebhooks(revision, tuple(self._spec(document) for document in documents))

    # --- changes ---

    def create(self, body: WebhookCreate) -> tuple[StoredWebhook, str]:
        """A new webhook, and its secret, which no later response has."""
        secret, now = new_secret(), time.time()
        record = WebhookRecord(
            id="wh_" + secrets.token_hex(8),
            name=body.name,
            url=body.url,
            events=body.events,
            headers=self._sealed(body.headers, {}),
            enabled=body.enabled,
            secret_sealed=self._seal_text(secret, SECRET_PURPOSE),
            created_at=now,
            updated_at=now,
        )
        with self._lock:
            if len(self._store.find(COLLECTION)) >= MAX_WEBHOOKS:
                raise Invalid(None, f"there are {MAX_WEBHOOKS} webhooks already")
            stored = self._put(record, 0)
        return stored, secret

    def update(
        self,
        webhook_id: str,
        body: WebhookUpdate,
        if_match: int | None,
        check: Callable[[WebhookRecord], None] = lambda _record: None,
    ) -> StoredWebhook:
        """Change any part. `check` may refuse the result. Enabling resumes waiting deliveries."""
        with self._lock:
            before = self._matching(webhook_id, if_match)
            changed: dict[str, Any] = body.model_dump(exclude={"headers"}, exclude_none=True)
            if body.headers is not None:
                changed["headers"] = self._sealed(body.headers, before.record.headers)
            if body.enabled is not None:
                changed["disabled_reason"] = None
            record = before.record.model_copy(update={**changed, "updated_at": time.time()})
            check(record)
            if is_same(before.record, record):
                return before
            return self._put(record, before.revision)

    def delete(self, webhook_id: str, if_match: int | None) -> None:
        """Delete a webhook and its waiting deliveries."""
        with self._lock:
            before = self._matching(webhook_id, if_match)
            try:
                self._store.delete(COLLECTION, webhook_id, before.revision)
            except (NotStored, RevisionConflict) as error:
                raise NotFound("The webhook") from error
            self.notify_sender()

    def rotate(self, webhook_id: str, if_match: int | None) -> tuple[StoredWebhook, str]:
        """A new secret; for a day deliveries are signed with the older one, too."""
        secret, now = new_secret(), time.time()
        with self._lock:
            before = self._matching(webhook_id, if_match)
            older = PreviousSecret(sealed=before.record.secret_sealed, until=now + PREVIOUS_SECRET_FOR)
            kept = [each for each in before.record.previous_secrets if each.until > now]
            record = before.record.model_copy(
                update={
                    "secret_sealed": self._seal_text(secret, SECRET_PURPOSE),
                    "previous_secrets": [older, *kept][:MAX_PREVIOUS_SECRETS],
                    "updated_at": now,
                }
            )
            return self._put(record, before.revision), secret

    def disable(self, webhook_id: str, reason: str, before: float) -> None:
        """Disable a webhook for the sender, unless it is deleted or disabled, or was changed after `before`."""
        with self._lock, on_behalf_of("system", "disableWebhook"):
            document = self._store.get(COLLECTION, webhook_id)
            record = None if document is None else WebhookRecord.model_validate(document.body)
            if document is None or record is None or not record.enabled or record.updated_at > before:
                return
            update = {"enabled": False, "disabled_reason": reason, "updated_at": time.time()}
            self._put(record.model_copy(update=update), document.revision)
        self._publish("webhook.disabled", {"webhook_id": webhook_id, "name": record.name, "reason": reason})

    # --- requests to the sender ---

    def statuses(self) -> dict[str, WebhookStatus]:
        """The status of deliveries by webhook id; empty when the sender doesn't reply."""
        reply = self._bridge.ask(WEBHOOKS, QueryWebhookStatus(), SENDER_TIMEOUT)
        return reply.webhooks if isinstance(reply, WebhookStatuses) else {}

    def failing(self) -> list[Flaw]:
        """The enabled webhooks whose last request failed, as of a moment ago; empty when the sender doesn't reply."""
        now = time.monotonic()
        if now - self._failing_at > REMEMBERED:
            records = [WebhookRecord.model_validate(each.body) for each in self._store.find(COLLECTION)]
            enabled = [each for each in records if each.enabled]
            self._failing = of_webhooks(enabled, self.statuses()) if enabled else []
            self._failing_at = now
        return self._failing

    def with_statuses(self) -> list[tuple[str, str, WebhookStatus]]:
        """Id, name and status of each webhook, oldest first; empty when the sender doesn't reply."""
        records = [WebhookRecord.model_validate(each.body) for each in self._store.find(COLLECTION)]
        statuses = self.statuses() if records else {}
        nothing = WebhookStatus(0, None, None, None)
        return [(each.id, each.name, statuses.get(each.id, nothing)) for each in records] if statuses else []

    def sender_state(self) -> WebhookSenderState | None:
        """The state of the sender; None when it doesn't reply."""
        reply = self._bridge.ask(WEBHOOKS, QueryWebhookSender(), SENDER_TIMEOUT)
        return reply if isinstance(reply, WebhookSenderState) else None

    def probe(self, webhook_id: str, timeout: float, request_id: str) -> WebhookTried:
        """Send `webhook.test` now, and wait for it as long as the sender may take."""
        message = SendTestEvent(webhook_id, request_id)
        return request(self._bridge, WEBHOOKS, message, WebhookTried, timeout=timeout + ASK_TIMEOUT)

    def deliveries(self, question: QueryDeliveries) -> Deliveries:
        """A page of the delivery log."""
        return request(self._bridge, WEBHOOKS, question, Deliveries, timeout=ASK_TIMEOUT)

    def redeliver(self, webhook_id: str, delivery_id: str) -> Deliveries:
        """Once more. Raises `NotFound`."""
        reply = request(self._bridge, WEBHOOKS, Redeliver(webhook_id, delivery_id), Deliveries, timeout=ASK_TIMEOUT)
        if not reply.deliveries:
            raise NotFound("The delivery")
        return reply

    # --- inside ---

    def _matching(self, webhook_id: str, if_match: int | None) -> StoredWebhook:
        stored = self.get(webhook_id)
        if if_match not in (None, stored.revision):
            raise StaleRevision(stored.revision)
        return stored

    def _put(self, record: WebhookRecord, expect: int) -> StoredWebhook:
        document = self._store.put(COLLECTION, record.model_dump(mode="json"), expect)
        self.notify_sender()
        return self._load(document)

    def notify_sender(self) -> None:
        """Send the sender what the store has; one that does not run fetches it at its start."""
        try:
            reply = self._bridge.ask(WEBHOOKS, self.sender_config(), SENDER_TIMEOUT)
        except SecretBoxError as error:
            log.error("no webhook can be delivered to: %s", error)
            return
        if not isinstance(reply, Done):
            log.warning("the webhook sender gets a change later: %s", reason_of(reply))

    def _load(self, document: Document) -> StoredWebhook:
        record = WebhookRecord.model_validate(document.body)
        try:
            return StoredWebhook(record, document.revision, opened_headers(record.headers, self._seal))
        except SecretBoxError as error:
            raise StoreWriteError(str(error)) from error

    def _spec(self, document: Document) -> WebhookSpec:
        record = WebhookRecord.model_validate(document.body)
        sealed = [record.secret_sealed, *(each.sealed for each in record.previous_secrets)]
        return spec(
            WebhookSpec,
            record,
            headers=opened_headers(record.headers, self._seal),
            secrets=tuple(self._seal.open(each, SECRET_PURPOSE) for each in sealed),
            previous_until=tuple(each.until for each in record.previous_secrets),
        )

    def _sealed(self, headers: dict[str, str], before: dict[str, str]) -> dict[str, str]:
        try:
            return sealed_headers(headers, before, self._seal)[0]
        except SecretBoxError as error:
            raise StoreWriteError(str(error)) from error

    def _seal_text(self, text: str, purpose: str) -> str:
        try:
            return self._seal.seal(text, purpose)
        except SecretBoxError as error:
            raise StoreWriteError(str(error)) from error
