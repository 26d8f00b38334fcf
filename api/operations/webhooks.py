"""Webhooks and what was delivered to them."""

from __future__ import annotations

from api import queries
from api.operations.operation import V1, Operation
from api.resources import webhooks
from config.webhooks import READ_ONLY_FIELDS, WebhookCreate, WebhookUpdate

_WEBHOOK = f"{V1}/webhooks/{{webhook_id}}"

OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", f"{V1}/webhooks", "settings.read", "listWebhooks", "List webhooks", webhooks.list_webhooks),
    Operation(
        "POST",
        f"{V1}/webhooks",
        "settings.write",
        "createWebhook",
        "Create a webhook",
        webhooks.create_webhook,
        WebhookCreate,
        READ_ONLY_FIELDS,
        status=201,
    ),
    Operation("GET", _WEBHOOK, "settings.read", "getWebhook", "Show a webhook", webhooks.get_webhook, matches=True),
    Operation(
        "PUT",
        _WEBHOOK,
        "settings.write",
        "replaceWebhook",
        "Change a webhook",
        webhooks.update_webhook,
        WebhookUpdate,
        READ_ONLY_FIELDS,
        matches=True,
    ),
    Operation(
        "PATCH",
        _WEBHOOK,
        "settings.write",
        "updateWebhook",
        "Change a webhook",
        webhooks.update_webhook,
        WebhookUpdate,
        READ_ONLY_FIELDS,
        matches=True,
    ),
    Operation(
        "DELETE",
        _WEBHOOK,
        "settings.write",
        "deleteWebhook",
        "Delete a webhook",
        webhooks.delete_webhook,
        matches=True,
    ),
    Operation(
        "POST",
        f"{_WEBHOOK}/rotate-secret",
        "settings.write",
        "rotateWebhookSecret",
        "Sign with another secret",
        webhooks.rotate_secret,
        matches=True,
    ),
    Operation(
        "POST",
        f"{_WEBHOOK}/test",
        "settings.write",
        "testWebhook",
        "Send a test event to a webhook",
        webhooks.test_webhook,
    ),
    Operation(
        "GET",
        f"{_WEBHOOK}/deliveries",
        "settings.read",
        "listDeliveries",
        "List deliveries",
        webhooks.list_deliveries,
        query=queries.LIST_DELIVERIES,
    ),
    Operation(
        "POST",
        f"{_WEBHOOK}/deliveries/{{delivery_id}}/redeliver",
        "settings.write",
        "redeliver",
        "Send a delivery once more",
        webhooks.redeliver,
    ),
)
