"""The responses that waitress writes to the API's clients: the application's, and its own errors as JSON.

Requests that the server rejects before the application sees them are counted and logged like any other. One that can't
be parsed has no caller, so it counts for its client's address. It keeps its own status when that address has used up
its rate: a 429 would cost as much, and the connection ends either way.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from waitress.task import ErrorTask, WSGITask

from actors.net.client_key import client_key
from api.container import Services
from api.http.body import BODY_GATE, MAX_BODY, MAX_IMPORT, RETRY_AFTER
from api.http.error_table import INVALID_REQUEST, envelope_bytes
from api.http.request_site import client_address, request_id

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


MAX_HEAD = 64 * 1024
"""Bytes of the head of a request."""
HEAD_TOO_LARGE = 431
_NAMES = (
    *(b"ETag", b"RateLimit", b"RateLimit-Policy", b"WWW-Authenticate"),
    *(b"X-RateLimit-Limit", b"X-RateLimit-Remaining", b"X-RateLimit-Reset"),
)
_AS_SPECIFIED = {name.lower(): name for name in _NAMES}
_SPELLED = re.compile(rb"(?<=\r\n)(?:" + b"|".join(_NAMES) + rb")(?=: )", re.IGNORECASE)
NOSNIFF = ("X-Content-Type-Options", "nosniff")

_MESSAGES = {
    400: "The request can't be understood",
    413: "The body is too large",
    HEAD_TOO_LARGE: "The head of the request is too large",
    503: "The server has no room for one more body; try again in a moment",
    501: "This transfer coding is not supported",
}
_CODES = {500: "INTERNAL_ERROR", 503: "UNAVAILABLE"}
_REASONS = {
    413: f"must have at most {MAX_BODY} bytes ({MAX_IMPORT} of an import)",
    HEAD_TOO_LARGE: f"must have at most {MAX_HEAD} bytes",
}


class ErrorResponse(ErrorTask):
    """The response to a request that never reaches the application."""

    def execute(self) -> None:
        error = self.request.error
        if error.code == HEAD_TOO_LARGE:
            self.version = "1.1"  # waitress parses a request of its own, of 1.0, in place of such a head
        status = error.code if error.code in _MESSAGES else 500
        identifier = request_id(self.request.headers.get("X_REQUEST_ID"))
        code = _CODES.get(status, INVALID_REQUEST)
        details = (
            {"request_id": identifier}
            if status == 500
            else {"field": None, "error": _REASONS.get(status, str(error.body))}
        )
        body = envelope_bytes(code, _MESSAGES.get(status, "The server could not do this"), details)
        self.status = f"{error.code} {error.reason}"
        self.response_headers += [("Content-Type", "application/json"), ("X-Request-Id", identifier), NOSNIFF]
        if status == 503:
            self.response_headers.append(("Retry-After", str(RETRY_AFTER)))
        self.response_headers += self._report(error.code, str(error.body), identifier).items()
        self.set_close_on_finish()
        self.content_length = len(body)
        self.channel.reject()
        self.write(b"" if self._first_line.startswith(b"HEAD ") else body)

    @property
    def _first_line(self) -> bytes:
        return getattr(self.request, "first_line", b"")

    def _report(self, status: int, why: str, identifier: str) -> dict[str, str]:
        """Have it logged and counted. Returns headers for the response."""
        is_substitute = status == HEAD_TOO_LARGE  # waitress parses a line of its own in place of a head too large
        first_line = b"" if is_substitute else self._first_line
        peer = str(self.channel.addr[0])
        rejected = RejectedRequest(status, why, identifier, peer, first_line, self.request.headers)
        return dict(self.channel.server.on_rejected(rejected))


class Response(WSGITask):
    """The application's response; its `rejection` of a request whose body was not read ends the connection."""

    wrote_header: bool
    _stays = False
    """Whether the connection stays although the head that is being built has no length."""

    def execute(self) -> None:
        if self.request.rejection is None:
            super().execute()
            return
        self.complete = True
        self.status, self.response_headers, body = self.request.rejection
        self.request.headers["CONNECTION"] = "close"
        self.channel.reject()
        self.content_length = len(body)
        self.write(body)

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        if self.request.gate is not None:
            environ[BODY_GATE] = self.request.gate
        return environ

    def write(self, data: bytes) -> None:
        """A whole response goes by one system call."""
        if self.wrote_header or not self.complete or self.content_length != len(data) or not self.has_body:
            super().write(data)
            return
        head = self.build_response_header()
        self.wrote_header, self.content_bytes_written = True, len(data)
        self.channel.write_soon(head + data)

    def finish(self) -> None:
        super().finish()
        self.channel.response_is_whole = True

    def build_response_header(self) -> bytes:
        headers = self.request.headers
        if self.channel.server.draining_since is not None:
            headers["CONNECTION"] = "close"
        may_stay = self.version == "1.1" and "close" not in headers.get("CONNECTION", "").lower()
        self._stays = may_stay and not self.has_body
        head = spelled(bytes(super().build_response_header()))
        self._stays = False
        return head

    def set_close_on_finish(self) -> None:
        """waitress calls it for each head without a length; a 204 and a 304 end with theirs (RFC 9112, section 6.3)."""
        if not self._stays:
            super().set_close_on_finish()


def spelled(head: bytes) -> bytes:
    """The head of a response with the names of its fields as their specifications write them.

    Names mean the same in any case (RFC 9110, section 5.1), but waitress capitalizes each part of them, and people
    search for `ETag` and `X-RateLimit-Limit`.
    """
    return _SPELLED.sub(lambda found: _AS_SPECIFIED[found[0].lower()], head)
