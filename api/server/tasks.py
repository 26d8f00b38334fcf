"""What waitress writes to the API's clients: the application's answers, and its own refusals as JSON."""

from __future__ import annotations

from typing import Any

from waitress.task import ErrorTask, WSGITask

from api.http.body import MAX_BODY, MAX_IMPORT, RETRY_AFTER
from api.http.client import request_id
from api.http.environ import AFTER_RESPONSE, BODY_GATE
from api.http.errors import INVALID_REQUEST, envelope_bytes
from api.server.header_case import spelled
from api.server.rejected_requests import Refused

MAX_HEAD = 64 * 1024
"""Bytes of a request's head."""
HEAD_TOO_LARGE = 431
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


class Refusal(ErrorTask):  # type: ignore[misc]  # waitress has no types
    """The answer to what never reached the application."""

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
        self.response_headers += self._told(error.code, str(error.body), identifier).items()
        self.set_close_on_finish()
        self.content_length = len(body)
        self.channel.lingers = True
        self.write(body)

    def build_response_header(self) -> bytes:
        return spelled(super().build_response_header())

    def _told(self, status: int, why: str, identifier: str) -> dict[str, str]:
        """Have it logged and counted. Headers for the answer."""
        made_up = status == HEAD_TOO_LARGE  # waitress parses something else instead of a head that is too large
        first_line = b"" if made_up else getattr(self.request, "first_line", b"")
        peer = str(self.channel.addr[0])
        refused = Refused(status, why, identifier, peer, first_line, self.request.headers)
        return dict(self.channel.server.on_refused(refused))


class Answer(WSGITask):  # type: ignore[misc]
    """A request that the application answers.

    What it `refused` before the body was read is refused so, and the connection ends.
    """

    def execute(self) -> None:
        refused = self.request.refused
        if refused is None:
            super().execute()
            return
        self.complete = True
        self.status, self.response_headers, body = refused
        self.request.headers["CONNECTION"] = "close"
        self.channel.lingers = True
        self.content_length = len(body)
        self.write(body)

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        if self.request.gate is not None:
            environ[BODY_GATE] = self.request.gate
        return environ

    def build_response_header(self) -> bytes:
        # With this very response the API moves to another address.
        leaves = self.environ is not None and AFTER_RESPONSE in self.environ
        if leaves or self.channel.server.last_requests_since is not None or self.channel.outdated_since is not None:
            self.request.headers["CONNECTION"] = "close"
        return spelled(super().build_response_header())
