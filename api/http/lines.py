"""Bodies of a JSON object in each line (NDJSON), read line by line: all of them at once would not fit into memory.

They may be compressed (`Content-Encoding: gzip`). Lines count from 1, as an editor shows them; empty ones are left out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import falcon

from api.errors import Invalid
from api.http.body import LARGE_EACH, parse_object, read_body
from api.http.errors import invalid

NDJSON = "application/x-ndjson"
LINE_MAX = 256 * 1024
"""Bytes of one line."""
LINES_MAX = 200_000
UNPACKED_MAX = 256 * 1024 * 1024
"""Bytes of all lines."""


class Line(NamedTuple):
    """One object, or what is wrong with the line."""

    number: int
    content: dict[str, Any] | Invalid


class Lines:
    """The lines of a body; they can be read several times."""

    def __init__(self, content: bytes, packed: bool) -> None:
        self._content = content
        self._packed = packed

    @property
    def digest(self) -> str:
        """By which two bodies are compared."""
        return hashlib.sha256(self._content).hexdigest()

    def __iter__(self) -> Iterator[Line]:
        """Raises `Invalid` for what is wrong with the body as a whole."""
        unread = UNPACKED_MAX
        for number, line in enumerate(self._raw(), start=1):
            unread -= len(line)
            if number > LINES_MAX or unread < 0:
                raise Invalid(None, f"the body has more than {LINES_MAX} lines or {UNPACKED_MAX} bytes")
            if len(line) > LINE_MAX:
                raise Invalid(f"lines[{number}]", f"has more than {LINE_MAX} bytes")
            if line.strip():
                yield Line(number, _parsed(number, line))

    def _raw(self) -> Iterator[bytes]:
        raw = io.BytesIO(self._content)
        stream = gzip.GzipFile(fileobj=raw) if self._packed else raw
        try:
            while line := stream.readline(LINE_MAX + 1):
                yield line
        except (OSError, EOFError, zlib.error) as error:
            raise Invalid(None, f"the body is not gzip: {error}") from error


def has_lines(request: falcon.Request) -> bool:
    """Whether the body is said to be NDJSON."""
    return (request.content_type or "").partition(";")[0].strip().lower() == NDJSON


def read_lines(request: falcon.Request) -> Lines:
    """The body of a request. Raises `ApiError` 413, 415."""
    coding = (request.get_header("Content-Encoding") or "").strip().lower()
    if coding not in ("", "identity", "gzip"):
        raise invalid("Content-Encoding", "must be gzip, or left out", 415)
    most = LARGE_EACH if request.content_length is not None else LARGE_EACH // 2  # of which chunks may double the bytes
    return Lines(read_body(request, most), coding == "gzip")


def _parsed(number: int, line: bytes) -> dict[str, Any] | Invalid:
    try:
        return parse_object(line)
    except Invalid as error:
        return Invalid(f"lines[{number}]", error.error.replace("the body", "it"))
