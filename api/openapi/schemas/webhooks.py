"""The forms of webhooks and of their deliveries."""

from __future__ import annotations

from typing import Any, Literal

from api.openapi.schemas.resources import Form, Moment


class DeliveryStatusForm(Form):
    """How the deliveries of a webhook go."""

    waiting: int
    last_success_at: Moment | None
    last_failure_at: Moment | None
    last_error: str | None


class WebhookForm(Form):
    """A webhook. `delivery_status` is null while the sender doesn't answer, and in the answer to a create."""

    id: str
    name: str
    url: str
    events: list[str]
    headers: dict[str, str]
    enabled: bool
    disabled_reason: str | None
    previous_secret_until: Moment | None
    delivery_status: DeliveryStatusForm | None
    created_at: Moment
    updated_at: Moment


class SecretWebhookForm(WebhookForm):
    """A webhook with its secret, which is shown this once."""

    secret: str


class Webhooks(Form):
    """Webhooks, oldest first."""

    webhooks: list[WebhookForm]
    total: int


class OneWebhook(Form):
    """A webhook."""

    webhook: WebhookForm


class NewWebhook(Form):
    """A webhook with its secret."""

    webhook: SecretWebhookForm


class WebhookTested(Form):
    """How a test went; `response_time` in milliseconds."""

    delivered: bool
    status_code: int | None
    response_time: int | None
    error: str | None


class AttemptForm(Form):
    """One request, and what came back; `response_time` in milliseconds, `response_body` its beginning."""

    number: int
    timestamp: Moment
    url: str
    request_headers: dict[str, str]
    status_code: int | None
    response_time: int
    response_body: str
    error: str | None


class PayloadForm(Form):
    """What is sent."""

    id: str
    type: str
    timestamp: Moment
    data: dict[str, Any]


class DeliveryForm(Form):
    """One event for one webhook."""

    id: str
    webhook_id: str
    event_id: str
    event: str
    status: Literal["waiting", "delivered", "failed"]
    created_at: Moment
    next_attempt_at: Moment | None
    payload: PayloadForm
    attempts: list[AttemptForm]


class DeliveryPage(Form):
    """Deliveries, newest first."""

    deliveries: list[DeliveryForm]
    total: int
    has_more: bool


class OneDelivery(Form):
    """A delivery."""

    delivery: DeliveryForm
