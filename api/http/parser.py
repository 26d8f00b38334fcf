"""waitress' parser, which refuses what a balancer in front might read differently."""

from __future__ import annotations

from copy import copy
from typing import Any

from waitress.parser import HTTPRequestParser, ParsingError

from api.http.body import IMPORT_PATH, MAX_IMPORT

MAX_TAKEN_IN = 4 * 1024 * 1024
"""Bytes of a body that are read off the wire at most. Above the API's own limit, so that a client which sends a little
too much gets to read the 413 instead of a reset connection."""


class Parser(HTTPRequestParser):  # type: ignore[misc]  # waitress has no types
    """One request. Only where a whole configuration is imported much is taken in; beyond `MAX_TAKEN_IN` it lies in a
    temporary file meanwhile."""

    adj: Any
    version: str

    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        ambiguous = _ambiguous(header_plus.split(b"\r\n")[1:], self.version)
        if ambiguous is not None:
            raise ParsingError(ambiguous)
        if self.path == IMPORT_PATH:
            roomy = copy(self.adj)
            roomy.max_request_body_size = 2 * MAX_IMPORT
            self.adj = roomy


def _ambiguous(fields: list[bytes], version: str) -> str | None:
    """Why a balancer in front might see another request, or another end of it; None if it can't.

    waitress takes these, and goes on with the connection; what one of two takes for a body may then be the other one's
    next request (RFC 9112, sections 3.2, 5.2, 6.1 and 11.2).
    """
    if any(field.startswith((b" ", b"\t")) for field in fields):
        return "A field must not go on in the next line"
    given = [
        (name.lower(), value.strip(b" \t").lower()) for name, _, value in (each.partition(b":") for each in fields)
    ]
    names = [name for name, _ in given]
    codings = [value for name, value in given if name == b"transfer-encoding"]
    if codings and (b"content-length" in names or version != "1.1" or codings != [b"chunked"]):
        return "Transfer-Encoding must be chunked alone, once, without Content-Length, and in HTTP/1.1"
    if names.count(b"host") > 1 or (version == "1.1" and b"host" not in names):
        return "Exactly one Host is required"
    return None
