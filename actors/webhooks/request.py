"""One request to a webhook's target: signed after Standard Webhooks, to an address that was checked, within its time.

Blocks, so it is done off the loop.
"""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from requests.utils import DEFAULT_CA_BUNDLE_PATH
from standardwebhooks.webhooks import Webhook

from actors.bus.messages.events import Event, WebhookSpec
from actors.net.egress_guard import OutgoingGuard
from actors.net.guarded_client import HttpClient, RequestFailed, guarded
from actors.webhooks.queues import DeliveryOutcome
from config.model.choices import MASK
from config.text.formatting import timestamp_text

BODY_MAX = 4096
"""Octets of a response body that are read and kept."""
USER_AGENT = "Proxyfleet-Webhooks/1"


def payload(event: Event) -> str:
    """The body, the same at every attempt."""
    content = {"id": event.id, "type": event.type, "timestamp": timestamp_text(event.timestamp), "data": event.data}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def signed_headers(webhook: WebhookSpec, event: Event, body: str, now: float) -> dict[str, str]:
    """The headers that the sender adds; signed with every secret that is valid at this moment."""
    moment = datetime.fromtimestamp(math.floor(now), UTC)
    current, *older = webhook.secrets
    valid = [current, *(each for each, until in zip(older, webhook.previous_until, strict=True) if until > now)]
    return {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": event.id,
        "webhook-timestamp": str(math.floor(now)),
        "webhook-signature": " ".join(Webhook(each).sign(event.id, moment, body) for each in valid),
    }


def send(webhook: WebhookSpec, event: Event, guard: OutgoingGuard, timeout: float) -> DeliveryOutcome:
    """One attempt. Blocks, for `timeout` seconds at most; never raises for what the target or the network does."""
    body = payload(event)
    own = signed_headers(webhook, event, body, time.time())
    masked = {**dict.fromkeys(webhook.headers, MASK), **own}
    client = HttpClient(guarded(guard), timeout, authorities=DEFAULT_CA_BUNDLE_PATH)
    status, text, error, wait = None, "", None, None
    began = time.monotonic()
    try:
        with client.request("POST", webhook.url, {**webhook.headers, **own}, body.encode()) as response:
            text, status = response.beginning(BODY_MAX, cut=True).decode(errors="replace"), response.status
            error = None if 200 <= status < 300 else f"the target answered {status}"
            wait = _retry_after(response.headers.get("retry-after"), time.time())
    except RequestFailed as failure:
        error = f"no whole answer within {timeout:g} s" if failure.late else str(failure)
    return DeliveryOutcome(masked, status, round((time.monotonic() - began) * 1000), text, error, wait)


def _retry_after(text: str | None, now: float) -> float | None:
    """Seconds until the next attempt that the target asks for (RFC 9110 10.2.3); None when it is malformed."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, moment.timestamp() - now)
