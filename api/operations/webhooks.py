"""Webhooks and what was delivered to them."""

from __future__ import annotations

from api.openapi.schemas.base import Deleted
from api.openapi.schemas.webhooks import DeliveryPage, NewWebhook, OneDelivery, OneWebhook, Webhooks, WebhookTested
from api.operations.operation import V1, create, delete, get, post, resource, update
from api.resources import webhooks
from config.model.webhooks import READ_ONLY_FIELDS, WebhookCreate, WebhookUpdate

_ONE = "/{webhook_id}"

TABLE = resource(f"{V1}/webhooks", read="settings.read", write="settings.write")(
    get("", "listWebhooks", webhooks.list_webhooks, Webhooks),
    create("", "createWebhook", webhooks.create_webhook, NewWebhook, body=WebhookCreate, read_only=READ_ONLY_FIELDS),
    get(_ONE, "getWebhook", webhooks.get_webhook, OneWebhook, if_match=True),
    *update(
        _ONE,
        ("replaceWebhook", "updateWebhook"),
        webhooks.update_webhook,
        OneWebhook,
        body=WebhookUpdate,
        read_only=READ_ONLY_FIELDS,
        if_match=True,
    ),
    delete(_ONE, "deleteWebhook", webhooks.delete_webhook, Deleted, if_match=True),
    post(f"{_ONE}/rotate-secret", "rotateWebhookSecret", webhooks.rotate_secret, NewWebhook, if_match=True),
    post(f"{_ONE}/test", "testWebhook", webhooks.test_webhook, WebhookTested, audit="webhook.tested"),
    get(
        f"{_ONE}/deliveries",
        "listDeliveries",
        webhooks.list_deliveries,
        DeliveryPage,
        query=webhooks.ListDeliveries,
    ),
    post(
        f"{_ONE}/deliveries/{{delivery_id}}/redeliver",
        "redeliver",
        webhooks.redeliver,
        OneDelivery,
        audit="webhook.redelivered",
    ),
)
