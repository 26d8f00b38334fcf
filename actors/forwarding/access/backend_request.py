"""One request to an authentication back end, off the loop. Loaded only by proxies that have one, at the first request.

It is signed after Standard Webhooks and has a connection of its own, to an address that the guard allows.
"""

from __future__ import annotations

import json
import math
import secrets
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any, Final, NamedTuple

from standardwebhooks.webhooks import Webhook
from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from actors.bus.messages.specs import BackendSpec, LimitsSpec
from actors.net.egress_guard import OutgoingGuard
from actors.net.guarded_client import Breakable, connect_guarded, reason_of, requested

RESPONSE_MAX: Final = 64 * 1024
TTL_MAX: Final = 86_400.0
"""Seconds; a greater `ttl` is cut to it."""
ABORT_FIRST: Final = 1.0
"""Seconds that sockets wait beyond the deadline: who asked ends the request by `abort` at the deadline of the whole."""
USER_AGENT: Final = "Proxyfleet-Auth/1"

_LIMITS: Final = ("bandwidth_in", "bandwidth_out", "connections", "requests_per_minute")
_LIMIT_MAX: Final = 10**15


class BackendVerdict(NamedTuple):
    """What a back end has decided about a user.

    `account` is the user name of the account that the user is, empty for none. `ttl` is seconds, None without one.
    """

    allow: bool
    account: str = ""
    limits: LimitsSpec | None = None
    ttl: float | None = None


DENIED: Final = BackendVerdict(False)


class BackendRequest:
    """`send` runs in a thread; `abort` may be called by another one meanwhile."""

    def __init__(self, spec: BackendSpec, guard: OutgoingGuard, content: dict[str, Any]) -> None:
        self._spec = spec
        self._timeout = spec.timeout + ABORT_FIRST
        self._content = content
        self._connection = Breakable()
        self._connect = connect_guarded(guard, self._timeout, self._connection.adopt)
        self.abort = self._connection.abort
        """End the request: nothing waits for it any more."""

    def send(self) -> BackendVerdict | str:
        """The verdict, or a sentence that says why there is none."""
        try:
            return read_verdict(self._post())
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            return reason_of(error, ends_at=ValueError)
        finally:
            self._connection.release()

    def _post(self) -> bytes:
        body = json.dumps(self._content, separators=(",", ":"))
        headers = signed_headers(self._spec.secret, body)
        with requested("POST", self._spec.url, headers, self._connect, self._timeout, body.encode()) as response:
            return _body_of(response)


def signed_headers(secret: str, body: str) -> dict[str, str]:
    """The headers of a request with this body."""
    now, identifier = datetime.now(UTC).replace(microsecond=0), "msg_" + secrets.token_hex(12)
    return {
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "identity",
        "connection": "close",
        "user-agent": USER_AGENT,
        "webhook-id": identifier,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(identifier, now, body),
    }


def _body_of(response: BaseHTTPResponse) -> bytes:
    """The whole body. Raises `ValueError` for a response that is none of a back end."""
    if response.status != 200:
        raise ValueError(f"it responded with status {response.status}, not 200")
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise ValueError(f"it encoded its response as {encoding[:40]!r}; only identity is accepted")
    read = b""
    while more := response.read1(RESPONSE_MAX + 1 - len(read)):
        read += more
        if len(read) > RESPONSE_MAX:
            raise ValueError(f"its response has more than {RESPONSE_MAX} bytes")
    return read


def read_verdict(body: bytes) -> BackendVerdict:
    """The verdict in the body of a response. Raises `ValueError`."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError("its response is not JSON") from error
    if not isinstance(given, dict) or not isinstance(given.get("allow"), bool):
        raise ValueError("its response is not a JSON object with a boolean `allow`")
    if not given["allow"]:
        return DENIED
    return BackendVerdict(True, _account(given.get("account")), _limits(given.get("limits")), _ttl(given.get("ttl")))


def _account(given: object) -> str:
    if given is None:
        return ""
    if not isinstance(given, str) or not given:
        raise ValueError("`account` of its response is not a user name")
    return given


def _ttl(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not (math.isfinite(given) and given >= 0):
        raise ValueError("`ttl` of its response is not a number of seconds")
    return min(float(given), TTL_MAX)


def _limits(given: object) -> LimitsSpec | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise ValueError("`limits` of its response is not an object")
    for name, value in given.items():
        if name not in _LIMITS:
            raise ValueError(f"`limits` of its response has {name[:40]!r}; known are {', '.join(_LIMITS)}")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LIMIT_MAX:
            raise ValueError(f"`limits.{name}` of its response is not a whole number from 0")
    return LimitsSpec(**given)
