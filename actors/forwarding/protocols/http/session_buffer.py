"""The client's bytes that an HTTP session has received and not used yet, and how far they have been searched."""

from __future__ import annotations

from typing import Final

from actors.forwarding.protocols.http.head_parser import find_end
from actors.forwarding.protocols.http.states import Phase
from actors.forwarding.protocols.session import PhasedSession
from actors.forwarding.protocols.session_config import SessionConfig

EMPTY_LINES_MAX: Final = 8
"""Empty lines before a request that are ignored (RFC 9112 2.2): old clients end a body with one that isn't counted."""


class SessionBuffer(PhasedSession[Phase]):
    """The part of `HttpSession` that has its bytes."""

    __slots__ = ("_empty_lines", "_head_size", "_in", "_searched")

    def __init__(self, config: SessionConfig, now: float, phase: Phase) -> None:
        super().__init__(config, now, phase)
        self._in: bytes | bytearray = b""
        self._searched = 0
        self._head_size = 0
        self._empty_lines = 0

    def _append(self, data: bytes) -> None:
        if not self._in:
            self._in = data
        elif isinstance(self._in, bytearray):
            self._in += data
        else:
            self._in = bytearray(self._in) + data

    def _consume(self, count: int) -> bytes:
        """Remove the first `count` bytes and return them.

        The rest is cut in place: a thousand requests in one piece are not copied a thousand times.
        """
        held = self._in
        if len(held) == count:
            self._in = b""
            return bytes(held)
        if not isinstance(held, bytearray):
            held = self._in = bytearray(held)
        taken = bytes(held[:count])
        del held[:count]
        return taken

    def _consume_all(self) -> bytes:
        held, self._in = bytes(self._in), b""
        return held

    def _head_begins(self) -> bool:
        """Skip empty lines; True when the first byte of a head is there."""
        while self._in.startswith(b"\r\n") and self._empty_lines < EMPTY_LINES_MAX:
            self._empty_lines += 1
            self._consume(2)
        if not self._in or self._in == b"\r":
            return False
        self._empty_lines = self._searched = self._head_size = 0
        return True

    def _consume_head(self) -> bytes | None:
        """The whole head, or None while its end is to come. Raises `Refused` when it can't become one."""
        end = find_end(self._in, self._searched)
        if end < 0:
            self._searched = len(self._in)
            return None
        self._head_size = end
        return self._consume(end)
