"""The operations on webhooks and their deliveries.

The secret is only in the responses to a create and to a rotation. Headers, and path and query of a URL, often contain a
credential of the target: callers without `settings.write` get only the names of headers and the hosts. Callers without
`users.read` get no events about users.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from actors.bus.messages.webhooks import Delivery, DeliveryAttempt, QueryDeliveries, WebhookStatus
from api.call import Call, Reply
from api.errors import MissingPermission
from api.http.query import Query, choice, integer
from api.services.webhooks import StoredWebhook
from config.model.subscriptions import is_about_people
from config.model.webhooks import MASK, WebhookRecord, masked_url
from config.text.formatting import timestamp_text


class ListDeliveries(Query):
    """Filters of deliveries, and the page."""

    status: str | None = choice("Only deliveries of this status", ("waiting", "delivered", "failed"))
    limit: int = integer("The size of the page", 1, 1000, 100)
    offset: int = integer("How many to skip", 0, 1_000_000_000, 0)


def list_webhooks(call: Call) -> Reply:
    """List webhooks.

    Returns all webhooks with their subscriptions and the state of their deliveries. Secrets are not returned.
    """
    found = call.services.webhooks.all()
    statuses = call.services.webhooks.statuses() if found else {}
    views = [_view(call, webhook, statuses.get(webhook.record.id)) for webhook in found]
    return Reply({"webhooks": views, "total": len(views)})


def create_webhook(call: Call) -> Reply:
    """Create a webhook.

    Subscribes an address to events. The signing secret is in this response only.
    """
    _check_subscription(call, call.body.events)
    stored, secret = call.services.webhooks.create(call.body)
    return Reply({"webhook": {**_view(call, stored, None), "secret": secret}}, 201, stored.revision)


def get_webhook(call: Call) -> Reply:
    """Show a webhook.

    Returns a webhook with its subscriptions. The signing secret is not returned.
    """
    return _one(call, call.services.webhooks.get(call.params["webhook_id"]))


def update_webhook(call: Call) -> Reply:
    """Update a webhook.

    Changes the given fields and keeps all others. Setting `enabled` to true resumes the deliveries of a webhook that
    was disabled.
    """

    def check(record: WebhookRecord) -> None:
        _check_subscription(call, record.events)

    return _one(call, call.services.webhooks.update(call.params["webhook_id"], call.body, call.if_match, check))


def delete_webhook(call: Call) -> Reply:
    """Delete a webhook.

    Deletes the webhook and the deliveries that wait for it. No further request is sent to its address.
    """
    webhook_id = call.params["webhook_id"]
    call.services.webhooks.delete(webhook_id, call.if_match)
    return Reply({"id": webhook_id, "deleted": True})


def rotate_secret(call: Call) -> Reply:
    """Rotate the secret of a webhook.

    Creates a new signing secret, which is in this response only. Deliveries carry signatures of both secrets for 24
    hours.
    """
    stored, secret = call.services.webhooks.rotate(call.params["webhook_id"], call.if_match)
    return Reply({"webhook": {**_view(call, stored, None), "secret": secret}}, revision=stored.revision)


def test_webhook(call: Call) -> Reply:
    """Send a test event to a webhook.

    Sends a `webhook.test` event at once and waits for the outcome. The response is 200 also when the delivery fails;
    `delivered` and `error` have the outcome.
    """
    webhook = call.services.webhooks.get(call.params["webhook_id"])
    probed = call.services.webhooks.probe(webhook.record.id, call.services.settings.webhooks.timeout, call.request_id)
    return Reply(
        {
            "delivered": probed.delivered,
            "status_code": probed.status_code,
            "response_time": probed.response_time,
            "error": probed.error,
        }
    )


def list_deliveries(call: Call) -> Reply:
    """List deliveries.

    Returns the deliveries of a webhook, newest first, each with its attempts. They are kept for
    `webhooks.retention_days`.
    """
    query: ListDeliveries = call.query
    webhook_id = call.params["webhook_id"]
    message = QueryDeliveries(webhook_id, query.status or "", query.limit, query.offset)
    call.services.webhooks.get(webhook_id)
    page = call.services.webhooks.deliveries(message)
    more = message.offset + len(page.deliveries) < page.total
    views = [_delivery(call, each) for each in page.deliveries]
    return Reply({"deliveries": views, "total": page.total, "has_more": more})


def redeliver(call: Call) -> Reply:
    """Redeliver an event.

    Sends the event of a delivery again at once, with the same id, also for a disabled webhook. The receiver can use
    the id to ignore duplicates.
    """
    webhook = call.services.webhooks.get(call.params["webhook_id"])
    page = call.services.webhooks.redeliver(webhook.record.id, call.params["delivery_id"])
    return Reply({"delivery": _delivery(call, page.deliveries[0])})


# --- views --------------------------------------------------------------------------------------------------------


def _check_subscription(call: Call, events: list[str]) -> None:
    if is_about_people(events) and not call.caller.may("users.read"):
        raise MissingPermission("users.read", by_key=call.caller.key is not None)


def _one(call: Call, webhook: StoredWebhook) -> Reply:
    status = call.services.webhooks.statuses().get(webhook.record.id)
    return Reply({"webhook": _view(call, webhook, status)}, revision=webhook.revision)


def _view(call: Call, webhook: StoredWebhook, status: WebhookStatus | None) -> dict[str, Any]:
    record = webhook.record
    clear = call.caller.may("settings.write")
    until = max((each.until for each in record.previous_secrets), default=None)
    return {
        "id": record.id,
        "name": record.name,
        "url": record.url if clear else masked_url(record.url),
        "events": record.events,
        "headers": webhook.headers if clear else dict.fromkeys(webhook.headers, MASK),
        "enabled": record.enabled,
        "disabled_reason": record.disabled_reason,
        "previous_secret_until": _moment(until),
        "delivery_status": None if status is None else _status(status),
        "created_at": timestamp_text(record.created_at),
        "updated_at": timestamp_text(record.updated_at),
    }


def _status(status: WebhookStatus) -> dict[str, Any]:
    return {
        "waiting": status.waiting,
        "last_success_at": _moment(status.last_success_at),
        "last_failure_at": _moment(status.last_failure_at),
        "last_error": status.last_error,
    }


def _delivery(call: Call, delivery: Delivery) -> dict[str, Any]:
    event = delivery.event
    hidden = is_about_people([event.type]) and not call.caller.may("users.read")
    return {
        "id": delivery.id,
        "webhook_id": delivery.webhook_id,
        "event_id": event.id,
        "event": event.type,
        "status": delivery.status,
        "created_at": timestamp_text(delivery.created_at),
        "next_attempt_at": _moment(delivery.next_attempt_at),
        "payload": {
            "id": event.id,
            "type": event.type,
            "timestamp": timestamp_text(event.timestamp),
            "data": {} if hidden else event.data,
        },
        "attempts": [_attempt(each, call.caller.may("settings.write")) for each in delivery.attempts],
    }


def _attempt(attempt: DeliveryAttempt, clear: bool) -> dict[str, Any]:
    url = attempt.url if clear else masked_url(attempt.url)
    return {**asdict(attempt), "timestamp": timestamp_text(attempt.timestamp), "url": url}


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else timestamp_text(seconds)
