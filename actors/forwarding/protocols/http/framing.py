"""Message bodies: where one ends (RFC 9112 section 6), and what of the bytes is content.

Each body is fed bytes and returns content; what is behind its end is left over. A
chunked body is decoded strictly and coded anew when it is passed on, so nothing that a sender hid in the framing
(extensions, odd sizes, trailers) reaches the other side. Trailers that say what only a head may say are refused, since
an earlier recipient may have merged them into it.
"""

from __future__ import annotations

import re
from typing import Final

from actors.forwarding.protocols.failures import malformed
from actors.forwarding.protocols.http.head_parser import RequestHead, ResponseHead

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_QUOTED = rb"\"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e]|\\[\t\x20-\x7e])*+\""
_EXTENSION = rb";" + _TOKEN + rb"(?:=(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?+"
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:" + _EXTENSION + rb")*+\r\n")
"""Without the space that RFC 9112 7.1.1 calls bad and some read, nor obs-text: parsers differ on both."""
_TRAILER_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]++):[\t\x20-\x7e\x80-\xff]*+\r\n")
_HOPELESS: Final = re.compile(rb"\n|\x00|\r[^\n]")
CHUNK_LINE_MAX: Final = 256
"""Bytes of a chunk's size line with its extensions; extensions are read over, so there is no use for long ones."""
TRAILERS_MAX: Final = 8 * 1024
LAST_CHUNK: Final = b"0\r\n\r\n"


_NEVER_TRAILERS: Final = frozenset(
    b"transfer-encoding content-length trailer host connection keep-alive proxy-connection te upgrade via max-forwards "
    b"expect range if-match if-none-match if-modified-since if-unmodified-since if-range cache-control pragma "
    b"authorization proxy-authorization www-authenticate proxy-authenticate cookie set-cookie "
    b"content-encoding content-type content-range forwarded".split()
)
"""Framing, routing, modifiers of requests, authentication and the form of content: not in trailers (RFC 9110 6.5.1)."""


class ContentLengthBody:
    """A body of `remaining` more bytes."""

    __slots__ = ("remaining",)

    def __init__(self, length: int) -> None:
        self.remaining = length

    @property
    def complete(self) -> bool:
        """True once the whole body has been seen."""
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
        return f"<ContentLengthBody, {self.remaining} to come>"


class CloseDelimitedBody:
    """A body that ends with its connection; only responses may have one."""

    __slots__ = ()
    complete = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """All of it is content."""
        return data, b""

    def __repr__(self) -> str:
        return "<CloseDelimitedBody>"


class Chunked:
    """A chunked body (RFC 9112 7.1). Extensions and trailers are checked and dropped (7.1.1, 7.1.2).

    Trailers that only a head may have are refused.
    """

    __slots__ = ("_buffered", "_left", "_state", "_trailers")

    def __init__(self) -> None:
        self._state = "size"
        self._left = 0
        self._buffered = bytearray()
        self._trailers = 0

    @property
    def complete(self) -> bool:
        """True once the last chunk and the end of the trailers have been seen."""
        return self._state == "complete"

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """`(content, rest)` of `data`. Raises `Refused` for framing that is not exactly the grammar's."""
        if self._buffered:
            data = self._completed_lines(data)
        content: list[bytes] = []
        at = self._whole_chunks(data, content) if self._state == "size" else 0
        while at < len(data) and self._state != "complete":
            step = getattr(self, "_" + self._state)
            moved = step(data, at, content)
            if moved == at:
                self._buffered += data[at:]
                return b"".join(content), b""
            at = moved
        return b"".join(content), data[at:]

    @staticmethod
    def _whole_chunks(data: bytes, content: list[bytes]) -> int:
        """Read the chunks that are there from their size to their CRLF, and return the index behind them.

        A third of the time of the steps, which matters when all that comes is small chunks; the steps do the rest.
        """
        at = 0
        while match := _CHUNK_LINE.match(data, at):
            start = match.end()
            end = start + int(match[1], 16)
            if start == end or start - at > CHUNK_LINE_MAX or data[end : end + 2] != b"\r\n":
                break
            content.append(data[start:end])
            at = end + 2
        return at

    def _completed_lines(self, data: bytes) -> bytes:
        """The line that has begun and `data`; nothing as long as there is no end of it, so it is searched once."""
        buffered = self._buffered
        seen = len(buffered)
        buffered += data
        if b"\n" not in data:
            _line_to_come(buffered, 0, self._line_max, seen - 1)
            return b""
        whole = bytes(buffered)
        buffered.clear()
        return whole

    @property
    def _line_max(self) -> int:
        """How long the line being read may be; one more than is left for trailers, for their empty line."""
        return TRAILERS_MAX - self._trailers + 1 if self._state == "trailer" else CHUNK_LINE_MAX

    def _size(self, data: bytes, at: int, _pass_content: list[bytes]) -> int:
        match = _CHUNK_LINE.match(data, at)
        if match is None:
            return _line_to_come(data, at, self._line_max, at)
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

    def _data_end(self, data: bytes, at: int, _pass_content: list[bytes]) -> int:
        if data.startswith(b"\r\n", at):
            self._state = "size"
            return at + 2
        if data[at:] == b"\r":
            return at
        raise malformed("a chunk does not end with CRLF")

    def _trailer(self, data: bytes, at: int, _pass_content: list[bytes]) -> int:
        if data.startswith(b"\r\n", at):
            self._state = "complete"
            return at + 2
        match = _TRAILER_LINE.match(data, at)
        if match is None:
            return _line_to_come(data, at, self._line_max, at)
        if bytes(match[1]).lower() in _NEVER_TRAILERS:
            raise malformed(f"{match[1].decode('ascii')} in the trailers")
        self._trailers += match.end() - at
        if self._trailers > TRAILERS_MAX:
            raise malformed("the trailers are too long")
        return match.end()

    def __repr__(self) -> str:
        return f"<Chunked, at {self._state}, {self._left} of this chunk to come>"


Body = ContentLengthBody | CloseDelimitedBody | Chunked


def request_body(head: RequestHead) -> Body | None:
    """The body behind a request's head (RFC 9112 6.3); None when it has none."""
    fields = head.fields
    if fields.chunked:
        return Chunked()
    return ContentLengthBody(fields.length) if fields.length else None


def response_body(method: bytes, head: ResponseHead) -> Body | None:
    """The body behind a response's head to a request of this method (RFC 9112 6.3); None when it has none."""
    if method == b"HEAD" or head.status in (204, 304):
        return None
    if head.fields.chunked:
        return Chunked()
    length = head.fields.length
    if length is None:
        return CloseDelimitedBody()
    return ContentLengthBody(length) if length else None


def chunk(content: bytes) -> bytes:
    """`content` as one chunk; nothing for nothing, since an empty chunk would be the last."""
    return b"%x\r\n%b\r\n" % (len(content), content) if content else b""


def _line_to_come(data: bytes | bytearray, at: int, limit: int, unseen: int) -> int:
    """`at`, when the line there may still become good; raises `Refused` when it is whole and bad, or too long.

    What is before `unseen` has been searched.
    """
    if len(data) - at > limit or _HOPELESS.search(data, unseen):
        raise malformed("the chunked framing is broken")
    return at
