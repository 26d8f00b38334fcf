"""The responses that a proxy makes itself: errors, the 200 to CONNECT, and those to OPTIONS and TRACE that end here."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from actors.forwarding.protocols.commands import Report, ToClient
from actors.forwarding.protocols.failures import PROXY_NAME, Failure
from actors.forwarding.protocols.http.error_body import JSON_TYPE, PAGE_TYPE, UNKNOWN, Asker, page, problem, wants_page
from actors.forwarding.protocols.http.head_parser import RequestHead
from actors.forwarding.protocols.session_config import SessionConfig

ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
FINAL_RECIPIENT = (
    b"HTTP/1.1 200 OK\r\nAllow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, CONNECT\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)
"""The response to OPTIONS whose Max-Forwards ends here."""
NOT_TRACED = FINAL_RECIPIENT.replace(b"200 OK", b"405 Method Not Allowed")
"""The response to TRACE whose Max-Forwards ends here: it would disclose the request's fields to scripts (RFC 9110
9.3.8)."""

_PRINTABLE: Final = re.compile(r"[ -~]*+")
_status_lines: dict[int, str] = {}


def error_response(failure: Failure, asker: Asker = UNKNOWN, *, keep_alive: bool, with_body: bool = True) -> bytes:
    """A whole HTTP/1.1 response for `failure`, with `Proxy-Status` (RFC 9209) and a body for this client."""
    rule = f"; rule={failure.rule}" if failure.rule else ""
    body = (page if asker.wants_page else problem)(failure, asker).encode("utf-8", "replace")
    lines = [
        _status_line(failure.status),
        f'Proxy-Status: {PROXY_NAME}; error={failure.kind}; details="{_quotable(failure.disclosed_sentence)}"{rule}',
        f"Content-Type: {PAGE_TYPE if asker.wants_page else JSON_TYPE}",
        f"Content-Length: {len(body)}",
        f"Connection: {'keep-alive' if keep_alive else 'close'}",
    ]
    if failure.retry_after:
        lines.append(f"Retry-After: {failure.retry_after}")
    if failure.status == 407:
        lines.append(f'Proxy-Authenticate: Basic realm="{PROXY_NAME}", charset="UTF-8"')
    head = "\r\n".join(lines).encode("ascii", "replace") + b"\r\n\r\n"
    return head + body if with_body else head


def refuse_head(
    failure: Failure, config: SessionConfig, started: float, now: float, size: int, head: RequestHead | None
) -> tuple[ToClient, Report]:
    """The response to a head that is no request, and its report; `size` is that of what came.

    `head` is None where it could not be read; else its target or its framing is wrong.
    """
    asker, with_body = Asker(config.new_id(), config.contact), True
    if head is not None:
        asker = asker._replace(method=head.method.decode("ascii"), wants_page=wants_page(head))
        with_body = head.method != b"HEAD"
    reply = dated(error_response(failure, asker, keep_alive=False, with_body=with_body), config.date(now))
    report = Report(b"", "", failure.status, failure.reason, "", started, now, size, len(reply))
    report.request_id = asker.request_id
    return ToClient(reply), report.because(failure)


def _status_line(status: int) -> str:
    known = _status_lines.get(status)
    if known is None:
        known = _status_lines[status] = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return known


def _quotable(text: str) -> str:
    """`text` as the inside of a Structured Fields string (RFC 8941 3.3.3): printable ASCII, two escapes."""
    if not _PRINTABLE.fullmatch(text):
        text = "".join(char if " " <= char <= "~" else "?" for char in text)
    return text.replace("\\", "\\\\").replace('"', '\\"')


def dated(response: bytes, line: bytes) -> bytes:
    """`response` with the `Date` line behind its status line."""
    status, end, rest = response.partition(b"\r\n")
    return status + end + line + rest
