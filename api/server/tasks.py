"""The responses that waitress writes to the API's clients: the application's, and its own errors as JSON."""

from __future__ import annotations

from typing import Any

from waitress.task import ErrorTask, WSGITask

from api.http.body import MAX_BODY, MAX_IMPORT, RETRY_AFTER
from api.http.client import request_id
from api.http.environ import AFTER_RESPONSE, BODY_GATE
from api.http.errors import INVALID_REQUEST, envelope_bytes
from api.server.header_case import spelled, whole_head
from api.server.rejected_requests import RejectedRequest

MAX_HEAD = 64 * 1024
"""Bytes of the head of a request."""
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

    def build_response_header(self) -> bytes:
        return spelled(super().build_response_header())

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
        """A whole response that isn't the last one of its connection goes by one system call."""
        if self.wrote_header or not self.complete or self.content_length != len(data) or not self._is_plain:
            super().write(data)
            return
        head = self.build_response_header()
        self.wrote_header, self.content_bytes_written = True, len(data)
        if self.close_on_finish:
            self.channel.write_soon(head + data)
        else:
            self.channel.send_last(head + data)

    @property
    def _is_plain(self) -> bool:
        return self.has_body and (self.environ is None or AFTER_RESPONSE not in self.environ)

    def finish(self) -> None:
        super().finish()
        self.channel.flush_now()

    def build_response_header(self) -> bytes:
        moves = self.environ is not None and AFTER_RESPONSE in self.environ  # after it, the API has another address
        if moves or self.channel.server.draining_since is not None or self.channel.outdated_since is not None:
            self.request.headers["CONNECTION"] = "close"
        if self.version == "1.1" and self.has_body and self.request.headers.get("CONNECTION", "").lower() != "close":
            head = whole_head(self.status, self.response_headers, self.start_time)
            if head is not None:
                return head
        return spelled(super().build_response_header())
