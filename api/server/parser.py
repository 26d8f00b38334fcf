"""waitress' parser; it rejects what a balancer in front might read differently, and stops before large bodies.

A chunked body (RFC 9112, section 7.1) is read to the letter. waitress takes more for one: lines that end with a line
feed alone, empty lines before a size, anything for a trailer. A balancer in front may read those in another way, and
see the next request elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from typing import Any

from waitress.parser import HTTPRequestParser, ParsingError
from waitress.utilities import BadRequest, Error

from api.concurrency_limit import Allowance, Reservation
from api.http.body import LARGE_EACH, LARGE_TOTAL, SMALL, SMALL_TOTAL, BodyGate

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


LENGTH_DIGITS_MAX = 18
"""Of a Content-Length: below an exabyte. Python refuses to read thousands of digits."""
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_HOST = re.compile(rb"[^\s,/?#@\\\x00-\x1f]*")


class TooManyBodies(Error):
    """No room for one more body."""

    code = 503
    reason = "Service Unavailable"


class Bodies:
    """The memory that all requests of a server share for their bodies."""

    def __init__(self) -> None:
        self.small = Allowance(SMALL_TOTAL, SMALL_TOTAL)
        self.large = Allowance(LARGE_TOTAL, LARGE_EACH)


class Parser(HTTPRequestParser):
    """One request. `adj.bodies` are the `Bodies` of the server.

    With a body that is larger than `SMALL` it is `completed` at first without it, so that it gets its turn among the
    connection's requests; `gate` holds the application's decision, and `resume` reads the rest.
    """

    adj: Any
    version: str
    first_line: bytes
    command: str
    request_uri: str
    proxy_scheme: str
    proxy_netloc: str
    path: str
    query: str
    fragment: str
    url_scheme: str
    headers: dict[str, str]
    chunked: bool
    body_rcv: Any
    completed: bool
    expect_continue: bool
    gate: BodyGate | None = None
    rejection: tuple[str, list[tuple[str, str]], bytes] | None = None
    """The application's response in place of opening the gate: status, headers, body."""
    waits_for_continue = False
    _rest = b""

    def __init__(self, adj: Any) -> None:
        super().__init__(adj)
        self.reservation = Reservation()

    def received(self, data: bytes) -> int:
        consumed = int(super().received(data))
        if self.completed:  # waitress would send a 100 and read the next request as a part of this one
            self.expect_continue = False
        if self.completed or self.body_rcv is None or self.gate is not None:
            return consumed
        if max(self.content_length, self.body_bytes_received) > SMALL:
            self._stop_before_body(data[consumed:])
            return len(data)
        if not self.body_bytes_received and not self._reserve():
            self.error, self.completed = TooManyBodies("too many bodies are being received at once"), True
        return consumed

    @property
    def awaits_decision(self) -> bool:
        """Whether the application has yet to decide if the body is read."""
        return self.gate is not None and not self.gate.body_is_here and self.error is None

    def resume(self) -> None:
        """Read the body, since the gate is open."""
        if self.gate is None or self.gate.most is None:
            raise ValueError("the gate is closed")
        self.adj = copy(self.adj)
        self.adj.max_request_body_size = 2 * self.gate.most + SMALL
        self.gate.body_is_here = True  # when the application is called again
        self.completed = False
        rest, self._rest = self._rest, b""
        if rest:
            self.received(rest)

    def close(self) -> None:
        super().close()
        self.reservation.release()

    def parse_header(self, header_plus: bytes) -> None:
        lines = header_plus.split(b"\r\n")
        self.version = "1.0" if lines[0].endswith(b" HTTP/1.0") else "1.1"  # of the response to what is rejected below
        if any(_is_excessive_length(line) for line in lines):
            raise ParsingError("Content-Length is too large")
        try:
            super().parse_header(header_plus)
        except ValueError as error:  # `urllib` has more of them than waitress expects
            raise ParsingError("Bad URI") from error
        if _CONTROL.search(self.request_uri):  # `urllib` leaves some of them out: it would be another path
            raise ParsingError("Bad URI")
        ambiguous = _ambiguous(lines[1:], self.version)
        if ambiguous is not None:
            raise ParsingError(ambiguous)
        self._settle()

    def _settle(self) -> None:
        """What waitress leaves open: the host of an absolute target (RFC 9112, section 3.2.2), options of the
        connection beside others (RFC 9110, section 7.6.1), and how chunks are read."""
        if self.proxy_netloc:
            self.headers["HOST"] = self.proxy_netloc
        options = [each.strip().lower() for each in self.headers.get("CONNECTION", "").split(",")]
        if "close" in options:
            self.headers["CONNECTION"] = "close"
        if self.chunked:
            self.body_rcv = ChunkedBody(self.body_rcv.getbuf())

    def _stop_before_body(self, rest: bytes) -> None:
        length = None if self.chunked else self.content_length
        self.gate = BodyGate(length, self.adj.bodies.large, self.reservation)
        self._rest = rest
        self.waits_for_continue, self.expect_continue = self.expect_continue, False
        self.completed = True

    def _reserve(self) -> bool:
        return self.reservation.reserve(self.adj.bodies.small, "", SMALL if self.chunked else self.content_length)


def _is_excessive_length(line: bytes) -> bool:
    name, _, value = line.partition(b":")
    return name.lower() == b"content-length" and len(value.strip(b" \t0")) > LENGTH_DIGITS_MAX


def _ambiguous(fields: list[bytes], version: str) -> str | None:
    """Why a balancer in front might see another request, or another end of it; None if it can't.

    waitress accepts these and keeps the connection; what one of the two reads as a body may then be the next request of
    the other (RFC 9112, sections 3.2, 5.2, 6.1 and 11.2).
    """
    if any(field.startswith((b" ", b"\t")) for field in fields):
        return "A field must not go on in the next line"
    pairs = [
        (name.lower(), value.strip(b" \t").lower()) for name, _, value in (each.partition(b":") for each in fields)
    ]
    names = [name for name, _ in pairs]
    hosts = [value for name, value in pairs if name == b"host"]
    codings = [value for name, value in pairs if name == b"transfer-encoding"]
    if codings and (b"content-length" in names or version != "1.1" or codings != [b"chunked"]):
        return "Transfer-Encoding must be chunked alone, once, without Content-Length, and in HTTP/1.1"
    if len(hosts) > 1 or (version == "1.1" and not hosts):
        return "Exactly one Host is required"
    return None if all(_HOST.fullmatch(host) for host in hosts) else "Host must be a name or an address"
