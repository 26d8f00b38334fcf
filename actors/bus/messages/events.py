"""Events for webhooks and subscribers, and the state of their delivery."""

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
