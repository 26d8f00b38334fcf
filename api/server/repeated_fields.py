"""The fields of a request's head that a client sends again and again.

A client of a kept connection as a rule sends the same fields with every request, byte for byte, and only another
target. What they mean needs to be found out once: `api.server.parser` checks and reads them when they come for the
first time, and takes what it has read when the next head of the connection has the same bytes. Only the first line is
read then, and only one that has nothing to decide: HTTP/1.1 and a path without escapes. All others are read in full.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

FIELDS_MAX = 4096
"""Bytes of fields that are remembered, for each connection."""
_ABOUT_A_BODY = frozenset(("CONTENT_LENGTH", "TRANSFER_ENCODING", "EXPECT"))
_FIRST_LINE = re.compile(rb"([A-Z]+) ((/(?:[\w.~-][\w.~/-]*)?)(?:\?([\w.~&=-]+))?) HTTP/1\.1")


class FirstLine(NamedTuple):
    """A first line of HTTP/1.1 that says nothing in any other way."""

    method: str
    target: str
    path: str
    query: str


def plain_first_line(line: bytes) -> FirstLine | None:
    """The parts of a first line of HTTP/1.1 whose path and query need no decoding; None for any other."""
    found = _FIRST_LINE.fullmatch(line)
    return None if found is None else FirstLine(*(each.decode("ascii") for each in found.groups(b"")))


class RepeatedFields:
    """The fields of the last head of one connection, for the thread that reads it."""

    def __init__(self) -> None:
        self._fields: bytes | None = None
        self._headers: dict[str, str] = {}

    def headers(self, fields: bytes) -> dict[str, str] | None:
        """A copy of what these bytes were read as; None if they are not those of the last head."""
        return self._headers.copy() if fields == self._fields else None

    def remember(self, fields: bytes, request: Any) -> None:
        """`request` was read without an error, and `fields` were its own.

        Those of a request with a body, or that ends the connection, have a meaning beyond their values.
        """
        headers: dict[str, str] = request.headers
        is_plain = (
            request.version == "1.1"
            and not request.proxy_netloc  # it replaces the host
            and not request.connection_close
            and request.body_rcv is None
            and headers.get("CONNECTION", "").lower() in ("", "keep-alive")
            and headers.keys().isdisjoint(_ABOUT_A_BODY)
        )
        if is_plain and len(fields) <= FIELDS_MAX:
            self._fields, self._headers = fields, headers.copy()
