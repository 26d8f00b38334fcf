"""Message bodies: where one ends (RFC 9112 section 6), and what of the bytes is content.

Each body is fed bytes and gives content; what it doesn't take is left over and belongs to whatever comes next. A
chunked body is decoded strictly and coded anew when it is passed on, so nothing that a sender hid in the framing
(extensions, odd sizes, trailers) reaches the other side. Trailers that say what only a head may say are refused, since
somebody before us may have merged them into it.
"""

from __future__ import annotations

import re

from actors.forwarding.errors import malformed

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*+(?:;[\t\x20-\x7e\x80-\xff]*+)?\r\n")
_TRAILER_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]++):[\t\x20-\x7e\x80-\xff]*+\r\n")
_HOPELESS = re.compile(rb"\n|\x00|\r[^\n]")
CHUNK_LINE_MAX = 256
"""Bytes of a chunk's size line with its extensions; extensions are read over, so there is no use for long ones."""
TRAILERS_MAX = 8 * 1024
LAST_CHUNK = b"0\r\n\r\n"


_NEVER_TRAILERS = frozenset(
    b"transfer-encoding content-length trailer host connection keep-alive proxy-connection te upgrade via max-forwards "
    b"expect range if-match if-none-match if-modified-since if-unmodified-since if-range cache-control pragma "
    b"authorization proxy-authorization www-authenticate proxy-authenticate cookie set-cookie "
    b"content-encoding content-type content-range forwarded".split()
)
"""Framing, routing, modifiers of requests, authentication and the form of content: not in trailers (RFC 9110 6.5.1)."""


class Counted:
    """A body of `remaining` more bytes."""

    __slots__ = ("remaining",)

    def __init__(self, length: int) -> None:
        self.remaining = length

    @property
    def complete(self) -> bool:
        """Has the whole body been seen?"""
        return self.remaining == 0

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """`(content, rest)` of `data`; the rest is behind the body."""
        if len(data) <= self.remaining:
            self.remaining -= len(data)
            return data, b""
        cut = self.remaining
        self.remaining = 0
        return data[:cut], data[cut:]

    def __repr__(self) -> str:
        return f"<Counted, {self.remaining} to come>"


class UntilClose:
    """A body that ends with its connection; only answers may have one."""

    __slots__ = ()
    complete = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """All of it is content."""
        return data, b""

    def __repr__(self) -> str:
        return "<UntilClose>"


class Chunked:
    """A chunked body (RFC 9112 7.1). Extensions and trailers are checked and dropped (7.1.1, 7.1.2).

    Trailers that only a head may have are refused.
    """

    __slots__ = ("_held", "_left", "_state", "_trailers")

    def __init__(self) -> None:
        self._state = "size"
        self._left = 0
        self._held = b""
        self._trailers = 0

    @property
    def complete(self) -> bool:
        """Has the last chunk and the end of the trailers been seen?"""
        return self._state == "complete"

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """`(content, rest)` of `data`. Raises `Refused` for framing that is not exactly the grammar's."""
        if self._held:
            data = self._held + data
            self._held = b""
        content: list[bytes] = []
        at = 0
        while at < len(data) and self._state != "complete":
            step = getattr(self, "_" + self._state)
            moved = step(data, at, content)
            if moved == at:
                self._held = data[at:]
                return b"".join(content), b""
            at = moved
        return b"".join(content), data[at:]

    def _size(self, data: bytes, at: int, _content: list[bytes]) -> int:
        match = _CHUNK_LINE.match(data, at)
        if match is None:
            return _line_to_come(data, at, CHUNK_LINE_MAX)
        if match.end() - at > CHUNK_LINE_MAX:
            raise malformed("a chunk's size line is too long")
        self._left = int(match[1], 16)
        self._state = "data" if self._left else "trailer"
        return match.end()

    def _data(self, data: bytes, at: int, content: list[bytes]) -> int:
        part = data[at : at + self._left]
        content.append(part)
        self._left -= len(part)
        if self._left == 0:
            self._state = "data_end"
        return at + len(part)

    def _data_end(self, data: bytes, at: int, _content: list[bytes]) -> int:
        if data.startswith(b"\r\n", at):
            self._state = "size"
            return at + 2
        if data[at:] == b"\r":
            return at
        raise malformed("a chunk does not end with CRLF")

    def _trailer(self, data: bytes, at: int, _content: list[bytes]) -> int:
        if data.startswith(b"\r\n", at):
            self._state = "complete"
            return at + 2
        match = _TRAILER_LINE.match(data, at)
        if match is None:
            return _line_to_come(data, at, TRAILERS_MAX - self._trailers)
        if match[1].lower() in _NEVER_TRAILERS:
            raise malformed(f"{match[1].decode('ascii')} in the trailers")
        self._trailers += match.end() - at
        if self._trailers > TRAILERS_MAX:
            raise malformed("the trailers are too long")
        return match.end()

    def __repr__(self) -> str:
        return f"<Chunked, at {self._state}, {self._left} of this chunk to come>"


Body = Counted | UntilClose | Chunked


def chunk(content: bytes) -> bytes:
    """`content` as one chunk; nothing for nothing, since an empty chunk would be the last."""
    return b"%x\r\n%b\r\n" % (len(content), content) if content else b""


def _line_to_come(data: bytes, at: int, limit: int) -> int:
    """`at`, when the line there may still become good; raises `Refused` when it is whole and bad, or too long."""
    if len(data) - at > limit or _HOPELESS.search(data, at):
        raise malformed("the chunked framing is broken")
    return at
