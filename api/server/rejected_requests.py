"""What the server refuses before the application sees it: counted and logged like any other request.

A request that can't be parsed has no caller, so it counts for its client's address. It keeps its own status when that
address has used up its rate: to say no costs as much either way, and the connection ends with it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.net.client_key import client_key
from api.container import Services
from api.http.client import client_address

LINE_SHOWN = 200
"""Bytes of a request's path that are logged."""
UNKNOWN = "-"
log = logging.getLogger("api.requests")


@dataclass(frozen=True, slots=True)
class Refused:
    """A request as far as it was understood. `headers` are named as WSGI does, without `HTTP_`."""

    status: int
    why: str
    request_id: str
    peer: str
    first_line: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class RejectedRequestLog:
    """Called by the server's threads with each request that it refuses; gives headers for the answer."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, refused: Refused) -> dict[str, str]:
        """Count it and log it (`security.request_logging`)."""
        settings, rates = self._services.settings, self._services.rates
        forwarded = refused.headers.get("X_FORWARDED_FOR")
        address = client_address(refused.peer, forwarded, settings.server.trusted_proxies)
        if settings.security.request_logging:
            _log(refused, address)
        return rates.hit(client_key(address)).headers if rates.enabled else {}


def _log(refused: Refused, address: str) -> None:
    method, path = _named(refused.first_line)
    fields = {
        "request_id": refused.request_id,
        "method": method,
        "path": path,
        "status": refused.status,
        "client_ip": address,
        "user": None,
        "credential": None,
        "error": refused.why,
    }
    message = "%(method)s %(path)s %(status)s for nobody at %(client_ip)s, %(request_id)s: refused unread: %(error)s"
    log.info(message, fields, extra={"fields": fields})


def _named(first_line: bytes) -> tuple[str, str]:
    """Method and path without query, safe to show."""
    words = first_line.split(b" ")
    shown = [repr(word.partition(b"?")[0][:LINE_SHOWN])[2:-1] or UNKNOWN for word in words[:2]]
    return shown[0], shown[1] if len(shown) > 1 else UNKNOWN
