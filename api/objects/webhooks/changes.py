"""What becomes of a webhook when it is made and changed: its headers, its secret, and whether it is enabled."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

from api.audit.context import on_behalf_of
from api.engine.objects import Objects
from api.errors import NotFound
from config.files.secret_box import SecretBox
from config.model.declaration import update
from config.model.webhooks import (
    SECRET_PURPOSE,
    PreviousSecret,
    WebhookCreate,
    WebhookRecord,
    WebhookUpdate,
    new_secret,
    sealed_headers,
)

PREVIOUS_SECRET_FOR = 24 * 3600.0
"""Seconds that the older secret is signed with beside the new one."""
MAX_PREVIOUS_SECRETS = 3


def new_webhook(body: WebhookCreate, now: float, seal: SecretBox) -> WebhookRecord:
    """The webhook that `body` describes, with a new secret. Raises `SecretBoxError`."""
    blank = WebhookRecord(
        id="wh_" + secrets.token_hex(8),
        name=body.name,
        url=body.url,
        events=body.events,
        headers={},
        enabled=body.enabled,
        secret_sealed=seal.seal(new_secret(), SECRET_PURPOSE),
        created_at=now,
        updated_at=now,
    )
    return change_webhook(blank, body, now, seal)


def change_webhook(before: WebhookRecord, body: WebhookUpdate, now: float, seal: SecretBox) -> WebhookRecord:
    """`before` with the changes of `body`. Enabling resumes waiting deliveries. Raises `SecretBoxError`."""
    changed: dict[str, Any] = {**update(before, body), "updated_at": now}
    if body.headers is not None:
        changed["headers"] = sealed_headers(body.headers, before.headers, seal)[0]
    if "enabled" in changed:
        changed["disabled_reason"] = None
    return before.model_copy(update=changed)


def rotated(before: WebhookRecord, seal: SecretBox) -> WebhookRecord:
    """With a new secret; for a day deliveries are signed with the older one, too. Raises `SecretBoxError`."""
    now = time.time()
    changed = {"secret_sealed": seal.seal(new_secret(), SECRET_PURPOSE), "updated_at": now}
    return with_previous_secret(before.model_copy(update=changed), before, now)


def with_previous_secret(after: WebhookRecord, before: WebhookRecord, now: float) -> WebhookRecord:
    """`after` with the secrets that are valid at present; that of `before` remains so for a while, if it differs."""
    kept = [each for each in before.previous_secrets if each.until > now and each.sealed != after.secret_sealed]
    if after.secret_sealed == before.secret_sealed:
        return after.model_copy(update={"previous_secrets": before.previous_secrets})
    older = PreviousSecret(sealed=before.secret_sealed, until=now + PREVIOUS_SECRET_FOR)
    return after.model_copy(update={"previous_secrets": [older, *kept][:MAX_PREVIOUS_SECRETS]})


def disable(
    webhooks: Objects[WebhookRecord],
    publish: Callable[[str, dict[str, Any]], None],
    webhook_id: str,
    reason: str,
    before: float,
) -> None:
    """Disable a webhook for the sender, unless it is deleted or disabled, or was changed after `before`."""
    disabled: list[WebhookRecord] = []

    def change(record: WebhookRecord) -> WebhookRecord:
        disabled.clear()
        if not record.enabled or record.updated_at > before:
            return record
        update = {"enabled": False, "disabled_reason": reason, "updated_at": time.time()}
        disabled.append(record.model_copy(update=update))
        return disabled[0]

    with on_behalf_of("system", "disableWebhook"):
        try:
            webhooks.change(webhook_id, change, None)
        except NotFound:
            return
    for each in disabled:
        publish("webhook.disabled", {"webhook_id": webhook_id, "name": each.name, "reason": reason})
