"""The content of an error response: problem details (RFC 9457) for programs, and a small page for browsers, which are
distinguished here (RFC 9110 12.5.1).

A refusal must be cheap, since anyone who is refused can ask for thousands of them. What is the same for all of a reason
is put together once. Texts of clients and operators are cut to a length and escaped; the page loads nothing.

The responses that a proxy makes itself: errors, the 200 to CONNECT, and those to OPTIONS and TRACE that end here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, NamedTuple

from actors.forwarding.protocols.commands import Report, ToClient
from actors.forwarding.protocols.failures import PROXY_NAME, Failure
from actors.forwarding.protocols.http.head_parser import RequestHead
from actors.forwarding.protocols.refusals import DOCS, advice_for
from actors.forwarding.protocols.session import SessionConfig

TEXT_MAX: Final = 1000
"""Characters of one text of a body."""
ACCEPT_MAX: Final = 1024
"""Bytes of `Accept` that are read."""

JSON_TYPE: Final = "application/problem+json"
PAGE_TYPE: Final = "text/html; charset=utf-8\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'"
"""With what forbids the page to load and run anything: in a browser it is of the refused target's origin."""


class Asker(NamedTuple):
    """What the response says of the request, and how. `host` and `method` are empty where there is no request yet.

    `contact` is whom to ask, a URL or a mail address, empty for none. `wants_page`: it is a browser.
    """

    request_id: str = ""
    contact: str = ""
    host: str = ""
    method: str = ""
    wants_page: bool = False


UNKNOWN: Final = Asker()

_BROWSER: Final = b"mozilla/"
"""Begins the User-Agent of every browser, and that of hardly anything else."""
_JSON: Final = frozenset((b"application/json", b"application/problem+json"))
_WEIGHT: Final = re.compile(rb"[ \t]*+q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*+", re.IGNORECASE)

_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*+")
_HARMLESS: Final = re.compile(r"[\w /.:@-]*+")
_HTML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})

_problems: dict[tuple[int, str], str] = {}
"""The beginning of problem details by status and reason, of which there are as many as the code has."""
_pages: dict[tuple[int, str], tuple[str, str, str]] = {}
"""The beginning of pages, what is behind the detail, and the end."""


def problem(failure: Failure, asker: Asker) -> str:
    """The problem details as JSON in ASCII."""
    start = _problems.get((failure.status, failure.reason))
    if start is None:
        start = _problems[failure.status, failure.reason] = _start(failure)
    retryable = "true" if _retryable(failure) else "false"
    rest = f'"detail": {_quoted(failure.detail)}, "retryable": {retryable}'
    for name, text in _facts(failure, asker):
        if text:
            rest += f', "{name}": {_quoted(text)}'
    return f"{{{start}{rest}}}\n"


def page(failure: Failure, asker: Asker) -> str:
    """The same as a page of HTML, for people: whom to ask and whether to wait come first."""
    parts = _pages.get((failure.status, failure.reason))
    if parts is None:
        parts = _pages[failure.status, failure.reason] = _page_parts(failure)
    *others, contact = _facts(failure, asker)
    members = (contact, ("retryable", _again(failure)), *others)
    rows = "".join([f"<dt>{_LABELS[name]}<dd>{_linked(name, text)}" for name, text in members if text])
    return f"{parts[0]}{_escaped(failure.detail)}{parts[1]}{rows}{parts[2]}"


_LABELS: Final = {
    "contact": "Whom to ask",
    "retryable": "Try again later",
    "policy": "Policy that decided",
    "rule": "Rule that decided",
    "list": "List that has the target",
    "host": "Host",
    "method": "Method",
    "request_id": "Request id (for the operator)",
}
_HEAD: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width,initial-scale=1"><style>'
    ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;"
    "padding:0 1rem;overflow-wrap:anywhere}h1{font-size:1.4rem}dt{opacity:.7;font-size:.85rem}dd{margin:0 0 .6rem}"
    "</style>"
)


def _facts(failure: Failure, asker: Asker) -> tuple[tuple[str, str], ...]:
    """Members by name, the contact last, with an empty text for those that are left out."""
    asked = (
        ("host", asker.host),
        ("method", asker.method),
        ("request_id", asker.request_id),
        ("contact", asker.contact),
    )
    decider = failure.decider
    if not (failure.disclosed and (decider.policy or decider.rule)):
        return asked
    return ("policy", decider.policy), ("rule", decider.rule), ("list", decider.named_list), *asked


def _start(failure: Failure) -> str:
    advice = advice_for(failure)
    members = {
        "type": f"{DOCS}#{failure.reason}",
        "title": advice.title,
        "status": failure.status,
        "reason": failure.reason,
        "next_steps": advice.next_steps,
    }
    return json.dumps(members)[1:-1] + ", "


def _page_parts(failure: Failure) -> tuple[str, str, str]:
    advice, reason = advice_for(failure), _escaped(failure.reason)
    title, steps = _escaped(advice.title), _escaped(advice.next_steps)
    return (
        f"{_HEAD}<title>{failure.status} {title}</title><h1>{title}</h1><p>",
        f"<p>{steps}<dl>",
        f"<dt>Reason<dd>{reason}<dt>Status<dd>{failure.status}</dl>\n",
    )


def _again(failure: Failure) -> str:
    """Whether it makes sense to try again, and when."""
    if not _retryable(failure):
        return "no"
    return f"yes, in {failure.retry_after} s" if failure.retry_after else "yes"


def _retryable(failure: Failure) -> bool:
    return advice_for(failure).retryable if failure.retryable is None else failure.retryable


def _quoted(text: str) -> str:
    """`text` as a string of JSON in ASCII, cut to `TEXT_MAX`."""
    cut = text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"
    return f'"{cut}"' if _PLAIN.fullmatch(cut) else json.dumps(cut)


def _escaped(text: str) -> str:
    cut = text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"
    return cut if _HARMLESS.fullmatch(cut) else cut.translate(_HTML)


def _linked(name: str, text: str) -> str:
    """A contact as a link; settings allow http, https and mail addresses alone."""
    escaped = _escaped(text)
    if name != "contact":
        return escaped
    return f'<a href="{escaped if "://" in text else "mailto:" + escaped}">{escaped}</a>'


def wants_page(head: RequestHead) -> bool:
    """True for a request that names HTML in `Accept`, and JSON not as gladly.

    CONNECT has no `Accept` of the page that the user asked for, so there the User-Agent alone says it.
    """
    lines = head.fields.lines
    if head.method == b"CONNECT":
        return any(value[: len(_BROWSER)].lower() == _BROWSER for value in _values(lines, b"user-agent:"))
    accept = b",".join(_values(lines, b"accept:"))[:ACCEPT_MAX].lower()
    if b"text/html" not in accept:
        return False  # nearly all programs
    html = json = 0.0
    for member in accept.split(b","):
        media, *parameters = member.split(b";")
        name = media.strip(b" \t")
        if name == b"text/html":
            html = max(html, _weight(parameters))
        elif name in _JSON:
            json = max(json, _weight(parameters))
    return html > json


def _weight(parameters: list[bytes]) -> float:
    """The quality value (RFC 9110 12.4.2): 1 without one; a malformed one is none."""
    for parameter in parameters:
        match = _WEIGHT.fullmatch(parameter)
        if match is not None:
            return float(match[1])
    return 1.0


def _values(lines: Iterable[bytes], name: bytes) -> list[bytes]:
    """The values of a field, whose name has its colon, each without the white space around it."""
    size = len(name)
    return [line[size:].strip(b" \t") for line in lines if line[:size].lower() == name]


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
