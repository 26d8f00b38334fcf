"""Events, and the webhooks that they are delivered to: their configuration, which the API owns, and their deliveries,
which the sender owns.
"""

from __future__ import annotations

from typing import Any

from actors.bus.codec import message


@message
class Event:
    """Supervisor, API or metrics collector → events plane, topic `events.<type>`: something happened.

    `id` is unique and stays the same through every delivery. `data` is JSON-like and holds no secret.
    """

    id: str
    type: str
    timestamp: float
    data: dict[str, Any]


@message
class QueryWebhookSender:
    """API → webhook sender: report its state. → `WebhookSenderState`."""


@message
class WebhookSenderState:
    """Webhook sender → API: how many events it stored since its start, and how many wait for delivery.

    `lost` are the events of all times that can't be delivered any more: the disk was full for too long, or too many
    waited.
    """

    taken: int
    waiting: int
    lost: int = 0


@message
class WebhookSpec:
    """The configuration of one webhook. A value, not a message by itself.

    `secrets` sign the requests, the current one first; those behind it until their `previous_until`.
    Events from before `created_at` are not for it.
    """

    id: str
    name: str
    url: str
    events: tuple[str, ...]
    headers: dict[str, str]
    enabled: bool
    secrets: tuple[str, ...]
    previous_until: tuple[float, ...]
    created_at: float


@message
class SetWebhooks:
    """API → webhook sender, at every change: all webhooks, in place of the known ones. → `Done`.

    It is the reply to `FetchWebhooks`, too. `revision` is the store's: an older one than the known is ignored.
    """

    revision: int
    webhooks: tuple[WebhookSpec, ...]


@message
class FetchWebhooks:
    """Webhook sender → API, at its start and now and then: fetch the webhooks. → `SetWebhooks`."""


@message
class DisableWebhook:
    """Webhook sender → API: the target is gone, or was unreachable for too long. → `Done`, also when it is gone.

    `reason` is a sentence. `before` is when the sender saw the reason: a webhook that was changed since is left alone.
    """

    webhook_id: str
    reason: str
    before: float


@message
class SendTestEvent:
    """API → webhook sender: send `webhook.test` once, now. → `WebhookTried`, or `Failed` when unknown.

    `request_id` is that of the API's request, and stands in the event's data.
    """

    webhook_id: str
    request_id: str = ""


@message
class WebhookTried:
    """Webhook sender → API: the result of the test. `response_time` is in milliseconds."""

    delivered: bool
    status_code: int | None
    response_time: int | None
    error: str | None


@message
class DeliveryAttempt:
    """One request for a delivery. A value, not a message by itself.

    `response_time` is in milliseconds, `response_body` its beginning. Values of the webhook's own headers are masked.
    """

    number: int
    timestamp: float
    url: str
    request_headers: dict[str, str]
    status_code: int | None
    response_time: int
    response_body: str
    error: str | None


@message
class Delivery:
    """One event for one webhook. A value, not a message by itself.

    `status` is `waiting`, `delivered` or `failed`; `next_attempt_at` is None when there is none.
    """

    id: str
    webhook_id: str
    event: Event
    status: str
    created_at: float
    next_attempt_at: float | None
    attempts: tuple[DeliveryAttempt, ...]


@message
class QueryDeliveries:
    """API → webhook sender: the deliveries of a webhook, newest first, of one `status` if it isn't empty. →
    `Deliveries`."""

    webhook_id: str
    status: str
    limit: int
    offset: int


@message
class Deliveries:
    """Webhook sender → API: a page of deliveries, and how many there are."""

    deliveries: tuple[Delivery, ...]
    total: int


@message
class Redeliver:
    """API → webhook sender: send this once more, now. → `Deliveries` of one, or of none."""

    webhook_id: str
    delivery_id: str


@message
class WebhookStatus:
    """The state of the deliveries of a webhook. A value, not a message by itself. Times are None where there is none.

    `failed_requests` counts since the sender's start.
    """

    waiting: int
    last_success_at: float | None
    last_failure_at: float | None
    last_error: str | None
    failed_requests: int = 0


@message
class QueryWebhookStatus:
    """API → webhook sender: the state of the deliveries. → `WebhookStatuses`."""


@message
class WebhookStatuses:
    """Webhook sender → API: by webhook id; one that is unknown is absent."""

    webhooks: dict[str, WebhookStatus]


@message
class ReplayEvents:
    """Webhook sender → supervisor: the events since that time, as far as it remembers them.

    At the sender's start and now and then, since the events plane keeps nothing for absent subscribers. →
    `ReplayedEvents`.
    """

    since: float


@message
class ReplayedEvents:
    """Supervisor → webhook sender: the events, oldest first."""

    events: tuple[Event, ...]
