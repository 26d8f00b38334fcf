"""One request to an authentication back end, off the loop. Loaded only by proxies that have one, at the first request.

It is signed after Standard Webhooks and has a connection of its own, to an address that the guard allows.
"""

from __future__ import annotations

import json
import math
import secrets
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from standardwebhooks.webhooks import Webhook

from actors.bus.messages.specs import BackendSpec, LimitsSpec
from actors.net.egress_guard import OutgoingGuard
from actors.net.guarded_client import ABORT_FIRST, HttpClient, RequestFailed, guarded

RESPONSE_MAX: Final = 64 * 1024
TTL_MAX: Final = 86_400.0
"""Seconds; a greater `ttl` is cut to it."""
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


def new_client(spec: BackendSpec, guard: OutgoingGuard) -> HttpClient:
    """For one request, which who asked ends at the deadline of the whole by `abort`."""
    return HttpClient(guarded(guard), silence=spec.timeout + ABORT_FIRST)


def verdict_of(client: HttpClient, spec: BackendSpec, content: dict[str, Any]) -> BackendVerdict | str:
    """The verdict, or a sentence that says why there is none. Blocks."""
    body = json.dumps(content, separators=(",", ":"))
    try:
        with client.request("POST", spec.url, signed_headers(spec.secret, body), body.encode()) as response:
            if response.status != 200:
                return f"it responded with status {response.status}, not 200"
            return read_verdict(response.whole(RESPONSE_MAX))
    except (RequestFailed, ValueError) as error:
        return str(error)


def signed_headers(secret: str, body: str) -> dict[str, str]:
    """The headers of a request with this body."""
    now, identifier = datetime.now(UTC).replace(microsecond=0), "msg_" + secrets.token_hex(12)
    return {
        "content-type": "application/json",
        "accept": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": identifier,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(identifier, now, body),
    }


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
