"""A chunked body (RFC 9112, section 7.1), read to the letter.

waitress takes more for one: lines that end with a line feed alone, empty lines before a size, anything for a trailer.
A balancer in front may read those in another way, and see the next request elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from waitress.utilities import BadRequest

LINE_MAX = 4096
"""Bytes of a line with the size of a chunk, or of a field of the trailer."""
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;" + _TOKEN + rb"(?:=(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?)*")
_FIELD = re.compile(_TOKEN + rb":[\t\x20-\x7e\x80-\xff]*")


class ChunkedBody:
    """What waitress' parser calls the receiver of a body: appends the content to `buf`."""

    def __init__(self, buf: Any) -> None:
        self.completed = False
        self.error: BadRequest | None = None
        self._buf = buf
        self._left = 0
        """Bytes of the present chunk that are still to come."""
        self._begun = b""
        """A line without its end."""
        self._on_line: Callable[[bytes], None] = self._on_size

    def __len__(self) -> int:
        """The bytes of the content."""
        return int(self._buf.__len__())

    def received(self, data: bytes) -> int:
        """Read on. Returns how many of the bytes belong to the body."""
        rest = data
        while rest and not self.completed and self.error is None:
            rest = self._read_content(rest) if self._left else self._read_line(rest)
        return len(data) - len(rest)

    def getfile(self) -> Any:
        """The content as a file."""
        return self._buf.getfile()

    def getbuf(self) -> Any:
        """The content as a buffer of waitress."""
        return self._buf

    def _read_content(self, data: bytes) -> bytes:
        content, rest = data[: self._left], data[self._left :]
        self._buf.append(content)
        self._left -= len(content)
        return rest

    def _read_line(self, data: bytes) -> bytes:
        end = data.find(b"\n") + 1 or len(data)
        line, rest = self._begun + data[:end], data[end:]
        if len(line) > LINE_MAX:
            self.error = BadRequest("A line between chunks is too long")
        elif not line.endswith(b"\n"):
            self._begun = line
        elif not line.endswith(b"\r\n"):
            self.error = BadRequest("A line between chunks must end with CR and LF")
        else:
            self._begun = b""
            self._on_line(line[:-2])
        return rest

    def _on_size(self, line: bytes) -> None:
        match = _SIZE.fullmatch(line)
        if match is None:
            self.error = BadRequest("Invalid chunk size")
            return
        self._left = int(match[1], 16)
        self._on_line = self._on_end_of_chunk if self._left else self._on_trailer

    def _on_end_of_chunk(self, line: bytes) -> None:
        if line:
            self.error = BadRequest("Chunk not properly terminated")
        self._on_line = self._on_size

    def _on_trailer(self, line: bytes) -> None:
        if not line:
            self.completed = True
        elif not _FIELD.fullmatch(line):
            self.error = BadRequest("Invalid trailer")
