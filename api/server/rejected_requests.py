"""Requests that the server rejects before the application sees them: counted and logged like any other.

A request that can't be parsed has no caller, so it counts for its client's address. It keeps its own status when that
address has used up its rate: a 429 would cost as much, and the connection ends either way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.net.client_key import client_key
from api.container import Services
from api.http.client import client_address

LOGGED_WORD_MAX = 200
"""Bytes of a request's method and of its path that are logged."""
UNKNOWN = "-"
log = logging.getLogger("api.requests")


@dataclass(frozen=True, slots=True)
class RejectedRequest:
    """A request as far as it was parsed. `headers` are named as WSGI does, without `HTTP_`."""

    status: int
    why: str
    request_id: str
    peer: str
    first_line: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class RejectedRequestLog:
    """Called by the server's threads with each request that they reject; returns headers for the response."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, rejected: RejectedRequest) -> dict[str, str]:
        """Count it and log it (`security.request_logging`)."""
        settings, rates = self._services.settings, self._services.rates
        forwarded = rejected.headers.get("X_FORWARDED_FOR")
        address = client_address(rejected.peer, forwarded, settings.server.trusted_proxies)
        if settings.security.request_logging:
            _log(rejected, address)
        return rates.hit(client_key(address)).headers if rates.enabled else {}


def _log(rejected: RejectedRequest, address: str) -> None:
    method, path = _printable_words(rejected.first_line)
    fields = {
        "request_id": rejected.request_id,
        "method": method,
        "path": path,
        "status": rejected.status,
        "client_ip": address,
        "user": None,
        "credential": None,
        "error": rejected.why,
    }
    message = "%(method)s %(path)s %(status)s anonymous at %(client_ip)s, %(request_id)s: refused unread: %(error)s"
    log.info(message, fields, extra={"fields": fields})


def _printable_words(first_line: bytes) -> tuple[str, str]:
    """Method and path without query, escaped for the log."""
    words = [*first_line.split(b" "), b""][:2]
    method, path = (repr(word.partition(b"?")[0][:LOGGED_WORD_MAX])[2:-1] or UNKNOWN for word in words)
    return method, path
