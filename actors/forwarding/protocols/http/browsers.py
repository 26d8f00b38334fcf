"""Whether the client of a request is a browser, which gets its errors as a page (RFC 9110 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from actors.forwarding.protocols.http.head_parser import RequestHead

ACCEPT_MAX: Final = 1024
"""Bytes of `Accept` that are read."""
_BROWSER: Final = b"mozilla/"
"""Begins the User-Agent of every browser, and that of hardly anything else."""
_JSON: Final = frozenset((b"application/json", b"application/problem+json"))
_WEIGHT: Final = re.compile(rb"[ \t]*+q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)[ \t]*+", re.IGNORECASE)


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
