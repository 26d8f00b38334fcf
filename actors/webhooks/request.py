"""One request to a webhook's target: signed after Standard Webhooks, to an address that was checked, within its time.

Blocks, so it is done off the loop. Every request has a connection of its own: the address that the guard has judged is
the one that is connected to, and when the time is over the connection is shut down under whatever is waiting at it;
a target that sends an octet now and then gets no further than a silent one.
"""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import requests
from standardwebhooks.webhooks import Webhook
from urllib3.exceptions import HTTPError

from actors.bus.messages.events import Event
from actors.bus.messages.webhooks import WebhookSpec
from actors.net.guarded_pools import GuardedAdapter, Refused
from actors.net.own_requests import OutgoingGuard
from config.model.webhooks import MASK
from config.text.formatting import timestamp_text

BODY_SHOWN = 4096
"""Octets of an answer's body that are read and kept."""
USER_AGENT = "Proxyfleet-Webhooks/1"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request went: `status_code` None when there was no answer; `error` None when all is well."""

    headers: dict[str, str]
    status_code: int | None
    response_time: int
    body: str
    error: str | None
    retry_after: float | None = None

    @property
    def delivered(self) -> bool:
        """Any 2xx is success."""
        return self.error is None


def payload(event: Event) -> str:
    """The body, the same at every attempt."""
    told = {"id": event.id, "type": event.type, "timestamp": timestamp_text(event.timestamp), "data": event.data}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def signed_headers(webhook: WebhookSpec, event: Event, body: str, now: float) -> dict[str, str]:
    """The headers of the sender's own; signed with every secret that is good at this moment."""
    moment = datetime.fromtimestamp(math.floor(now), UTC)
    current, *older = webhook.secrets
    good = [current, *(each for each, until in zip(older, webhook.previous_until, strict=True) if until > now)]
    return {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": event.id,
        "webhook-timestamp": str(math.floor(now)),
        "webhook-signature": " ".join(Webhook(each).sign(event.id, moment, body) for each in good),
    }


class Request:
    """One attempt. `send` is called in a thread of its own, `look` in another one meanwhile."""

    def __init__(self, webhook: WebhookSpec, event: Event, guard: OutgoingGuard, timeout: float) -> None:
        self._webhook = webhook
        self._event = event
        self._guard = guard
        self._timeout = timeout
        self._lock = threading.Lock()
        self._late = False
        self._deadline = math.inf
        self._line: socket.socket | None = None

    def send(self) -> Outcome:
        """Never raises for what the target or the way to it does."""
        body = payload(self._event)
        own = signed_headers(self._webhook, self._event, body, time.time())
        shown = {**dict.fromkeys(self._webhook.headers, MASK), **own}
        began = time.monotonic()
        self._deadline = began + self._timeout
        try:
            status, text, error, wait = self._post(body.encode(), {**self._webhook.headers, **own})
        except (requests.RequestException, HTTPError, OSError, ValueError) as failure:
            status, text, error, wait = None, "", self._said(failure), None
        finally:
            self._let_go()
        return Outcome(shown, status, round((time.monotonic() - began) * 1000), text, error, wait)

    def look(self) -> None:
        """End it if its time is over; to be called now and then."""
        if time.monotonic() < self._deadline:
            return
        with self._lock:
            self._late = True
            if self._line is not None:
                try:
                    self._line.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return  # the target was faster

    def connect(self, host: str, port: int) -> socket.socket:
        """A connection to an address of `host` that the guard lets pass. Raises `OSError`."""
        refusal = ""
        trouble: OSError | None = None
        for family, kind, protocol, _name, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            verdict = self._guard.judge(str(address[0]), port, host)
            if verdict is not None:
                refusal = verdict
                continue
            sock = socket.socket(family, kind, protocol)
            try:
                self._hold(sock)
                sock.settimeout(self._timeout)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.connect(address)
            except OSError as error:
                sock.close()
                trouble = error
            else:
                return sock
        raise trouble or Refused(refusal or f"{host} has no address")

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, str, str | None, float | None]:
        with requests.Session() as session:
            session.trust_env = False
            session.headers.clear()
            adapter = GuardedAdapter(self.connect)
            session.mount("http://", adapter)
            session.mount("https://", adapter)
            with session.post(
                self._webhook.url,
                data=body,
                headers={**headers, "connection": "close"},
                timeout=self._timeout,
                allow_redirects=False,
                stream=True,
            ) as answer:
                status = answer.status_code
                text = self._beginning(answer)
                error = None if 200 <= status < 300 else f"the target answered {status}"
                return status, text, error, _retry_after(answer.headers.get("retry-after"), time.time())

    def _beginning(self, answer: requests.Response) -> str:
        """What the status says counts; a body that breaks off changes nothing of it."""
        read = b""
        try:
            while len(read) < BODY_SHOWN and (more := answer.raw.read1(BODY_SHOWN - len(read))):
                read += more
        except (HTTPError, OSError, ValueError):
            if self._late:
                raise
        return read.decode(errors="replace")

    def _hold(self, sock: socket.socket) -> None:
        with self._lock:
            if self._line is not None:
                self._line.close()
            self._line = sock.dup()
            if self._late:
                raise TimeoutError

    def _let_go(self) -> None:
        with self._lock:
            if self._line is not None:
                self._line.close()
                self._line = None

    def _said(self, failure: Exception) -> str:
        if self._late or isinstance(failure, (requests.Timeout, TimeoutError)):
            return f"no whole answer within {self._timeout:g} s"
        return _reason(failure)


def _reason(failure: BaseException) -> str:
    """The innermost reason in words: requests and urllib3 wrap it several times."""
    inner: BaseException = failure
    while True:
        deeper = inner.__cause__ or inner.__context__
        wrapped = next((each for each in inner.args if isinstance(each, BaseException)), None)
        if isinstance(inner, OSError) and inner.strerror and not isinstance(inner, requests.RequestException):
            return inner.strerror
        if wrapped is None and deeper is None:
            return str(inner) or type(inner).__name__
        inner = wrapped or deeper or inner


def _retry_after(text: str | None, now: float) -> float | None:
    """Seconds that the target wants to be left alone (RFC 9110 10.2.3); None when it doesn't say so readably."""
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
