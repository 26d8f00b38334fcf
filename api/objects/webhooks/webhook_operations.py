"""What can be done with webhooks and their deliveries; and webhooks as callers see them.

The secret is only in the responses to a create and to a rotation. Headers, and path and query of a URL, often contain a
credential of the target: callers without `settings.write` get only the names of headers and the hosts. Callers without
`users.read` get no events about users.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from actors.bus.messages.events import Delivery, DeliveryAttempt, Event, QueryDeliveries, WebhookTried
from api.call import Call, Reply
from api.engine.objects import Objects
from api.engine.operation import V1, Operation, get, post, resource
from api.engine.records import Stored, moment
from api.engine.responses import Moment, NodesMeta, ResponseModel, mirrors
from api.errors import Invalid
from api.http.query import NodesAlone, OfNodes, choice, integer
from api.objects.webhooks.webhook_kind import WEBHOOKS, NewWebhook, rotated, view_of_webhook
from config.model.subscriptions import is_about_people
from config.model.webhooks import SECRET_PURPOSE, WebhookRecord, masked_url
from config.text.formatting import timestamp_text

OFFSET_MAX = 10_000
"""Deliveries that are merged for one page at most, beside those on it."""
UNTRIED = WebhookTried(False, None, None, "no node has responded")


@mirrors(WebhookTried)
class WebhookTestedAt(ResponseModel):
    """The outcome of a test by one node."""

    node: str


@mirrors(WebhookTried)
class WebhookTested(ResponseModel):
    """The outcome of a test; `response_time` in milliseconds.

    In a fleet of several it is that of the first of the `nodes` that could not deliver, or of the slowest.
    """

    nodes: list[WebhookTestedAt] | None = None
    meta: NodesMeta | None = None


@mirrors(DeliveryAttempt)
class AttemptView(ResponseModel):
    """One request and its response; `response_time` in milliseconds, `response_body` only its beginning."""

    timestamp: Moment


@mirrors(Event)
class PayloadView(ResponseModel):
    """The body of the request."""

    timestamp: Moment


class DeliveryView(ResponseModel):
    """One event for one webhook. `node` sends it, in a fleet of several."""

    id: str
    webhook_id: str
    event_id: str
    event: str
    status: Literal["waiting", "delivered", "failed"]
    created_at: Moment
    next_attempt_at: Moment | None
    payload: PayloadView
    attempts: list[AttemptView]
    node: str | None = None


class DeliveryPage(ResponseModel):
    """Deliveries, newest first."""

    deliveries: list[DeliveryView]
    total: int
    has_more: bool
    meta: NodesMeta | None = None


class OneDelivery(ResponseModel):
    """A delivery."""

    delivery: DeliveryView
    meta: NodesMeta | None = None


class ListDeliveries(OfNodes):
    """Filters of deliveries, and the page."""

    status: str | None = choice("Only deliveries of this status", ("waiting", "delivered", "failed"))
    limit: int = integer("The size of the page", 1, 1000, 100)
    offset: int = integer("How many to skip", 0, 1_000_000_000, 0)


def create_webhook(call: Call) -> Reply:
    """See `api.engine.operations`; with the secret."""
    return _with_secret(call, _webhooks(call).create(call.body, call.caller), 201)


def rotate_secret(call: Call) -> Reply:
    """Rotate the secret of a webhook.

    Creates a new signing secret, which is in this response only. Deliveries carry signatures of both secrets for 24
    hours.
    """
    seal = call.services.seal
    return _with_secret(call, _webhooks(call).change(_id(call), lambda before: rotated(before, seal), call.if_match))


def test_webhook(call: Call) -> Reply:
    """Send a test event to a webhook.

    Sends a `webhook.test` event at once and waits for the outcome. The response is 200 also when the delivery fails;
    `delivered` and `error` have the outcome. In a fleet each node sends one.
    """
    webhook, nodes = _webhooks(call).get(_id(call)), call.nodes
    timeout = call.services.settings.webhooks.timeout
    probed = call.services.webhooks.probe(webhook.record.id, timeout, call.request_id, nodes)
    tried = min(probed.values(), key=lambda each: (each.delivered, -(each.response_time or 0)), default=UNTRIED)
    found = [{**nodes.of_record(to), **asdict(each)} for to, each in probed.items()]
    return Reply({**asdict(tried), **({"nodes": found} if nodes.are_several else {})})


def list_deliveries(call: Call) -> Reply:
    """List deliveries.

    Returns the deliveries of a webhook, newest first, each with its attempts. They are kept for
    `webhooks.retention_days`.
    """
    query: ListDeliveries = call.query
    message = QueryDeliveries(_id(call), query.status or "", query.limit, query.offset)
    _webhooks(call).get(message.webhook_id)
    if call.nodes.are_several and query.offset > OFFSET_MAX:
        raise Invalid("offset", f"must be at most {OFFSET_MAX} where several nodes are asked")
    found, total = call.services.webhooks.deliveries(message, call.nodes)
    views = [_delivery(call, each, to) for to, each in found]
    return Reply({"deliveries": views, "total": total, "has_more": message.offset + len(views) < total})


def redeliver(call: Call) -> Reply:
    """Redeliver an event.

    Sends the event of a delivery again at once, with the same id, also for a disabled webhook. The receiver can use
    the id to ignore duplicates. In a fleet the node that has the delivery sends it.
    """
    webhook = _webhooks(call).get(_id(call))
    to, delivery = call.services.webhooks.redeliver(webhook.record.id, call.params["delivery_id"], call.nodes)
    return Reply({"delivery": _delivery(call, delivery, to)})


# --- views --------------------------------------------------------------------------------------------------------


def _webhooks(call: Call) -> Objects[WebhookRecord]:
    return call.services.objects[WEBHOOKS.collection]


def _id(call: Call) -> str:
    return call.params[WEBHOOKS.parameter]


def _with_secret(call: Call, stored: Stored[WebhookRecord], status: int = 200) -> Reply:
    seal = call.services.seal
    view = view_of_webhook(call.caller, stored.record, None, seal)
    secret = seal.open(stored.record.secret_sealed, SECRET_PURPOSE)
    return Reply({"webhook": {**view, "secret": secret}}, status, stored.revision)


def _delivery(call: Call, delivery: Delivery, to: str) -> dict[str, Any]:
    event = delivery.event
    hidden = is_about_people([event.type]) and not call.caller.may("users.read")
    return {
        "id": delivery.id,
        "webhook_id": delivery.webhook_id,
        "event_id": event.id,
        "event": event.type,
        "status": delivery.status,
        "created_at": timestamp_text(delivery.created_at),
        "next_attempt_at": moment(delivery.next_attempt_at),
        "payload": {
            **asdict(event),
            "timestamp": timestamp_text(event.timestamp),
            "data": {} if hidden else event.data,
        },
        "attempts": [_attempt(each, call.caller.may("settings.write")) for each in delivery.attempts],
        **call.nodes.of_record(to),
    }


def _attempt(attempt: DeliveryAttempt, clear: bool) -> dict[str, Any]:
    url = attempt.url if clear else masked_url(attempt.url)
    return {**asdict(attempt), "timestamp": timestamp_text(attempt.timestamp), "url": url}


ROWS: tuple[Operation, ...] = resource(f"{V1}/webhooks/{{webhook_id}}", read="settings.read", write="settings.write")(
    post("/rotate-secret", "rotateWebhookSecret", rotate_secret, NewWebhook, if_match=True),
    post("/test", "testWebhook", test_webhook, WebhookTested, query=NodesAlone, audit="webhook.tested"),
    get("/deliveries", "listDeliveries", list_deliveries, DeliveryPage, query=ListDeliveries),
    post(
        "/deliveries/{delivery_id}/redeliver",
        "redeliver",
        redeliver,
        OneDelivery,
        query=NodesAlone,
        audit="webhook.redelivered",
    ),
)
