"""Views of webhooks and of their deliveries."""

from __future__ import annotations

from typing import Any, Literal

from api.openapi.schemas.base import Moment, ResponseModel


class DeliveryStatusView(ResponseModel):
    """The state of the deliveries of a webhook."""

    waiting: int
    last_success_at: Moment | None
    last_failure_at: Moment | None
    last_error: str | None


class WebhookView(ResponseModel):
    """A webhook. `delivery_status` is null while the sender doesn't reply, and in the response to a create."""

    id: str
    name: str
    url: str
    events: list[str]
    headers: dict[str, str]
    enabled: bool
    disabled_reason: str | None
    previous_secret_until: Moment | None
    delivery_status: DeliveryStatusView | None
    created_at: Moment
    updated_at: Moment


class SecretWebhookView(WebhookView):
    """A webhook with its secret, which is only in this response."""

    secret: str


class Webhooks(ResponseModel):
    """Webhooks, oldest first."""

    webhooks: list[WebhookView]
    total: int


class OneWebhook(ResponseModel):
    """A webhook."""

    webhook: WebhookView


class NewWebhook(ResponseModel):
    """A webhook with its secret."""

    webhook: SecretWebhookView


class WebhookTested(ResponseModel):
    """The outcome of a test; `response_time` in milliseconds."""

    delivered: bool
    status_code: int | None
    response_time: int | None
    error: str | None


class AttemptView(ResponseModel):
    """One request and its response; `response_time` in milliseconds, `response_body` only its beginning."""

    number: int
    timestamp: Moment
    url: str
    request_headers: dict[str, str]
    status_code: int | None
    response_time: int
    response_body: str
    error: str | None


class PayloadView(ResponseModel):
    """The body of the request."""

    id: str
    type: str
    timestamp: Moment
    data: dict[str, Any]


class DeliveryView(ResponseModel):
    """One event for one webhook."""

    id: str
    webhook_id: str
    event_id: str
    event: str
    status: Literal["waiting", "delivered", "failed"]
    created_at: Moment
    next_attempt_at: Moment | None
    payload: PayloadView
    attempts: list[AttemptView]


class DeliveryPage(ResponseModel):
    """Deliveries, newest first."""

    deliveries: list[DeliveryView]
    total: int
    has_more: bool


class OneDelivery(ResponseModel):
    """A delivery."""

    delivery: DeliveryView
