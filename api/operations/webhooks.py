"""Webhooks and what was delivered to them."""

from __future__ import annotations

from api.operations import query_parameters
from api.operations.operation import V1, Operation
from api.resources import webhooks
from config.model.webhooks import READ_ONLY_FIELDS, WebhookCreate, WebhookUpdate

_WEBHOOK = f"{V1}/webhooks/{{webhook_id}}"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/webhooks",
        "settings.read",
        "listWebhooks",
        "List webhooks",
        webhooks.list_webhooks,
        description=(
            "Returns all webhooks with their subscriptions and the state of their deliveries. Secrets are not returned."
        ),
    ),
    Operation(
        "POST",
        f"{V1}/webhooks",
        "settings.write",
        "createWebhook",
        "Create a webhook",
        webhooks.create_webhook,
        WebhookCreate,
        READ_ONLY_FIELDS,
        description=("Subscribes an address to events. The signing secret is in this response only."),
        status=201,
    ),
    Operation(
        "GET",
        _WEBHOOK,
        "settings.read",
        "getWebhook",
        "Show a webhook",
        webhooks.get_webhook,
        description=("Returns a webhook with its subscriptions. The signing secret is not returned."),
        matches=True,
    ),
    Operation(
        "PUT",
        _WEBHOOK,
        "settings.write",
        "replaceWebhook",
        "Update a webhook",
        webhooks.update_webhook,
        WebhookUpdate,
        READ_ONLY_FIELDS,
        description=(
            "Changes the given fields and keeps all others; PUT and PATCH are the same here. Setting `enabled` "
            "to true resumes the deliveries of a webhook that was disabled."
        ),
        matches=True,
    ),
    Operation(
        "PATCH",
        _WEBHOOK,
        "settings.write",
        "updateWebhook",
        "Update a webhook",
        webhooks.update_webhook,
        WebhookUpdate,
        READ_ONLY_FIELDS,
        description=(
            "Changes the given fields and keeps all others. Setting `enabled` to true resumes the deliveries of "
            "a webhook that was disabled."
        ),
        matches=True,
    ),
    Operation(
        "DELETE",
        _WEBHOOK,
        "settings.write",
        "deleteWebhook",
        "Delete a webhook",
        webhooks.delete_webhook,
        description=(
            "Deletes the webhook and the deliveries that wait for it. No further request is sent to its address."
        ),
        matches=True,
    ),
    Operation(
        "POST",
        f"{_WEBHOOK}/rotate-secret",
        "settings.write",
        "rotateWebhookSecret",
        "Rotate the secret of a webhook",
        webhooks.rotate_secret,
        description=(
            "Creates a new signing secret, which is in this response only. Deliveries carry signatures of both "
            "secrets for 24 hours."
        ),
        matches=True,
    ),
    Operation(
        "POST",
        f"{_WEBHOOK}/test",
        "settings.write",
        "testWebhook",
        "Send a test event to a webhook",
        webhooks.test_webhook,
        description=(
            "Sends a `webhook.test` event at once and waits for the outcome. The response is 200 also when the "
            "delivery fails; `delivered` and `error` have the outcome."
        ),
    ),
    Operation(
        "GET",
        f"{_WEBHOOK}/deliveries",
        "settings.read",
        "listDeliveries",
        "List deliveries",
        webhooks.list_deliveries,
        description=(
            "Returns the deliveries of a webhook, newest first, each with its attempts. They are kept for "
            "`webhooks.retention_days`."
        ),
        query=query_parameters.LIST_DELIVERIES,
    ),
    Operation(
        "POST",
        f"{_WEBHOOK}/deliveries/{{delivery_id}}/redeliver",
        "settings.write",
        "redeliver",
        "Redeliver an event",
        webhooks.redeliver,
        description=(
            "Sends the event of a delivery again at once, with the same id, also for a disabled webhook. The "
            "receiver can use the id to ignore duplicates."
        ),
    ),
)
