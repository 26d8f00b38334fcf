"""One request to a webhook's target: signed after Standard Webhooks, to an address that was checked, within its time.

Blocks, so it is done off the loop. Every request has a connection of its own: to the very address that the guard has
allowed. At the deadline the connection is shut down, whatever waits for it; a target that sends an octet now and then
gets no further than a silent one.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from requests.utils import DEFAULT_CA_BUNDLE_PATH
from standardwebhooks.webhooks import Webhook
from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError, ReadTimeoutError

from actors.bus.messages.events import Event, WebhookSpec
from actors.net.egress_guard import OutgoingGuard
from actors.net.guarded_client import Breakable, connect_guarded, reason_of, requested
from actors.webhooks.queues import DeliveryOutcome
from config.model.webhooks import MASK
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


class Request:
    """One attempt. `send` runs in a thread of its own; another one calls `check_deadline` meanwhile."""

    def __init__(self, webhook: WebhookSpec, event: Event, guard: OutgoingGuard, timeout: float) -> None:
        self._webhook = webhook
        self._event = event
        self._guard = guard
        self._timeout = timeout
        self._deadline = math.inf
        self._connection = Breakable()

    def send(self) -> DeliveryOutcome:
        """Never raises for what the target or the network does."""
        body = payload(self._event)
        own = signed_headers(self._webhook, self._event, body, time.time())
        masked = {**dict.fromkeys(self._webhook.headers, MASK), **own}
        began = time.monotonic()
        self._deadline = began + self._timeout
        try:
            status, text, error, wait = self._post(body.encode(), {**self._webhook.headers, **own})
        except (HTTPError, OSError, ValueError) as failure:
            status, text, error, wait = None, "", self._error_text(failure), None
        finally:
            self._connection.release()
        return DeliveryOutcome(masked, status, round((time.monotonic() - began) * 1000), text, error, wait)

    def check_deadline(self) -> None:
        """Shut the connection down if the time is over; to be called now and then."""
        if time.monotonic() >= self._deadline:
            self._connection.abort()

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, str, str | None, float | None]:
        connect = connect_guarded(self._guard, self._timeout, self._connection.adopt)
        sent = {**headers, "connection": "close"}
        with requested(
            "POST", self._webhook.url, sent, connect, self._timeout, body, DEFAULT_CA_BUNDLE_PATH
        ) as response:
            text = self._beginning(response)
            error = None if 200 <= response.status < 300 else f"the target answered {response.status}"
            return response.status, text, error, _retry_after(response.headers.get("retry-after"), time.time())

    def _beginning(self, response: BaseHTTPResponse) -> str:
        """The status counts; a body that breaks off is cut. Raises `TimeoutError` when the time was over: the end of a
        head or body may be ours then."""
        read = b""
        with contextlib.suppress(HTTPError, OSError, ValueError):
            while len(read) < BODY_MAX and (more := response.read1(BODY_MAX - len(read))):
                read += more
        if self._connection.broken:
            raise TimeoutError
        return read.decode(errors="replace")

    def _error_text(self, failure: Exception) -> str:
        if self._connection.broken or isinstance(failure, (ReadTimeoutError, TimeoutError)):
            return f"no whole answer within {self._timeout:g} s"
        return reason_of(failure)


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
