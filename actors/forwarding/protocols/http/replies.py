"""The responses that a proxy makes itself: errors, the 200 to CONNECT, and those to OPTIONS and TRACE that end here."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from actors.forwarding.protocols.commands import Report, ToClient
from actors.forwarding.protocols.failures import PROXY_NAME, Failure

ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
FINAL_RECIPIENT = (
    b"HTTP/1.1 200 OK\r\nAllow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, CONNECT\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
"""The response to OPTIONS whose Max-Forwards ends here."""
NOT_TRACED = FINAL_RECIPIENT.replace(b"200 OK", b"405 Method Not Allowed")
"""The response to TRACE whose Max-Forwards ends here: it would disclose the request's fields to scripts (RFC 9110
9.3.8)."""


def error_response(failure: Failure, *, keep_alive: bool, with_body: bool = True) -> bytes:
    """A whole HTTP/1.1 response for `failure`, with `Proxy-Status` (RFC 9209)."""
    status = f"{failure.status} {HTTPStatus(failure.status).phrase}"
    rule = f"; rule={failure.rule}" if failure.rule else ""
    body = f"{status}: {failure.detail}\n".encode()
    lines = [
        f"HTTP/1.1 {status}",
        f'Proxy-Status: {PROXY_NAME}; error={failure.kind}; details="{_quotable(failure.detail)}"{rule}',
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    if failure.retry_after:
        lines.append(f"Retry-After: {failure.retry_after}")
    if failure.status == 407:
        lines.append(f'Proxy-Authenticate: Basic realm="{PROXY_NAME}", charset="UTF-8"')
    head = "\r\n".join(lines).encode("ascii", "replace") + b"\r\n\r\n"
    return head + body if with_body else head


def refuse_head(failure: Failure, date: bytes, started: float, now: float, size: int) -> tuple[ToClient, Report]:
    """The response to a head that is no request, and its report; `size` is that of what came."""
    reply = dated(error_response(failure, keep_alive=False), date)
    report = Report(b"", "", failure.status, failure.reason, "", started, now, size, len(reply))
    return ToClient(reply), report.because(failure)


def _quotable(text: str) -> str:
    """`text` as the inside of a Structured Fields string (RFC 8941 3.3.3): printable ASCII, two escapes."""
    printable = "".join(char if " " <= char <= "~" else "?" for char in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')


def dated(response: bytes, line: bytes) -> bytes:
    """`response` with the `Date` line behind its status line."""
    status, end, rest = response.partition(b"\r\n")
    return status + end + line + rest
