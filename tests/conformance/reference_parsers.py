"""Three reference parsers of HTTP by others, behind one interface: the first message of some bytes.

llhttp (by httptools), h11 and CPython's own (`http.server`, `http.client`, `email`). Where any two of them differ, a
sender can make a proxy and what is behind it see different messages; so that is where ours has to refuse.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message as EmailMessage
from http.client import HTTPException, HTTPResponse, IncompleteRead
from http.server import BaseHTTPRequestHandler
from typing import Any

import h11
import httptools

Field = tuple[bytes, bytes]


@dataclass
class Message:
    """One message as a parser reads it. `start` is `(method, target, minor)` or `(status, minor)`.

    `rest` is what is behind it; `whole` says whether its end is there.
    """

    start: tuple[Any, ...] = ()
    fields: list[Field] = field(default_factory=list)
    body: bytes = b""
    whole: bool = False
    rest: bytes = b""


class NotRead(Exception):
    """The parser refuses the bytes, or there is no whole head among them."""


ReferenceParser = Callable[[bytes, str], Message]
"""The first message of some bytes. The second argument is the method of the request that a response is for.

Raises `NotRead`.
"""


def _plain(fields: list[Field]) -> list[Field]:
    """Names in small letters and values without the space around them; so are codings, whose case says nothing."""
    plain = [(name.lower(), value.strip(b" \t")) for name, value in fields]
    return [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in plain]


# --- llhttp ---


class _Callbacks:
    def __init__(self) -> None:
        self.target = b""
        self.fields: list[Field] = []
        self.body = b""
        self.headed = self.complete = False

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.headed:  # trailers come here too
            self.fields.append((name, value))

    def on_headers_complete(self) -> None:
        self.headed = True

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.complete = True


def _llhttp(data: bytes, parser_of: Callable[[Any], Any]) -> tuple[_Callbacks, Any, bytes]:
    """Byte by byte, since that shows where the message ends."""
    seen = _Callbacks()
    parser = parser_of(seen)
    for at in range(len(data)):
        try:
            parser.feed_data(data[at : at + 1])
        except httptools.HttpParserUpgrade:
            seen.complete = True
        except httptools.HttpParserError as error:
            raise NotRead(str(error)) from error
        if seen.complete:
            return seen, parser, data[at + 1 :]
    if not seen.headed:
        raise NotRead("no whole head")
    return seen, parser, b""


def llhttp_request(data: bytes, _method: str = "") -> Message:
    """llhttp as a server has it."""
    seen, parser, rest = _llhttp(data, httptools.HttpRequestParser)
    start = (parser.get_method(), seen.target, _minor(parser.get_http_version().encode()))
    return Message(start, _plain(seen.fields), seen.body, seen.complete, rest)


def llhttp_response(data: bytes, _method: str) -> Message:
    """llhttp as a client has it; the end of the bytes is that of the connection. It has no notion of HEAD."""
    seen, parser, rest = _llhttp(data, httptools.HttpResponseParser)
    start = (parser.get_status_code(), _minor(parser.get_http_version().encode()))
    names = [name.lower() for name, _ in seen.fields]
    until_close = b"content-length" not in names and b"transfer-encoding" not in names
    return Message(start, _plain(seen.fields), seen.body, seen.complete or until_close, rest)


def _minor(version: bytes) -> int:
    if version not in (b"1.0", b"1.1"):
        raise NotRead(f"version {version!r}")
    return int(version[-1:])


# --- h11 ---


def h11_request(data: bytes, _method: str = "") -> Message:
    """h11 as a server has it."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    return _h11(connection)


def h11_answer(data: bytes, method: str) -> Message:
    """h11 as a client has it; interim responses come one at a time."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    connection.receive_data(b"")
    return _h11(connection)


def _h11(connection: h11.Connection) -> Message:
    message = Message()
    while not message.whole:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            if message.start and (
                "incomplete" in str(error) or "without sending complete" in str(error)
            ):  # the end came within the body
                return message
            raise NotRead(str(error)) from error
        if isinstance(event, h11.Request):
            message.start = (event.method, event.target, _minor(event.http_version))
            message.fields = _plain(list(event.headers))
        elif isinstance(event, h11.Response | h11.InformationalResponse):
            message.start = (event.status_code, _minor(event.http_version))
            message.fields = _plain(list(event.headers))
            message.whole = isinstance(event, h11.InformationalResponse)
        elif isinstance(event, h11.Data):
            message.body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            message.whole = True
        elif message.start:
            return message
        else:
            raise NotRead(f"no whole head: {event}")
    message.rest = connection.trailing_data[0]
    return message


# --- CPython ---


class _Bytes(io.BytesIO):
    """A connection whose end within a line is distinguished from that behind one, as a socket would wait there."""

    def readline(self, limit: int | None = -1, /) -> bytes:
        line = super().readline(limit)
        if not line.endswith(b"\n") and (limit is None or limit < 0 or len(line) < limit):
            raise NotRead("a line has no end")
        return line

    def close(self) -> None:
        return  # http.client closes what it has read to the end; what is behind it is wanted here


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, source: _Bytes) -> None:
        self.rfile = source
        self.wfile = io.BytesIO()
        self.raw_requestline = source.readline(65537)
        self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        raise NotRead(f"{code} {message}")

    def handle_expect_100(self) -> bool:
        return True


class _Socket:
    def __init__(self, source: _Bytes) -> None:
        self._source = source

    def makefile(self, _mode: str) -> _Bytes:
        return self._source


def cpython_request(data: bytes, _method: str = "") -> Message:
    """`http.server`, with the body read as `http.client` reads one, since `http.server` leaves that to its user."""
    source = _Bytes(data)
    handler = _Handler(source)
    if not handler.parse_request():
        raise NotRead("no request line")
    start = (
        handler.command.encode("latin-1"),
        handler.path.encode("latin-1"),
        _minor(handler.request_version.removeprefix("HTTP/").encode("latin-1")),
    )
    message = Message(start, _email_fields(handler.headers))
    reader = HTTPResponse(_Socket(source), method="POST")  # type: ignore[arg-type]
    if handler.headers.get("Transfer-Encoding", "").lower() == "chunked":
        reader.chunked, reader.chunk_left, reader.length = True, None, None  # type: ignore[assignment]
    else:
        reader.chunked, reader.length = False, _int(handler.headers.get("Content-Length"))
    _read_body(reader, source, message)
    return message


def _int(text: str | None) -> int:
    """As `http.client` takes a length, but that no length is no body in a request."""
    try:
        return max(0, int(text or "0"))
    except ValueError:
        return 0


def cpython_response(data: bytes, method: str) -> Message:
    """`http.client`; it skips 100 and takes any other interim response for the final one."""
    source = _Bytes(data)
    reader = HTTPResponse(_Socket(source), method=method)  # type: ignore[arg-type]
    try:
        reader.begin()
    except HTTPException as error:
        raise NotRead(repr(error)) from error
    if reader.version not in (10, 11):
        raise NotRead(f"version {reader.version}")
    message = Message((reader.status, reader.version - 10), _email_fields(reader.headers))
    _read_body(reader, source, message)
    return message


def _email_fields(headers: EmailMessage) -> list[Field]:
    return _plain([(name.encode("latin-1"), str(value).encode("latin-1")) for name, value in headers.raw_items()])


def _read_body(reader: HTTPResponse, source: _Bytes, message: Message) -> None:
    try:
        message.body = reader.read() if reader.length != 0 or reader.chunked else b""
        message.whole = True
    except IncompleteRead as error:
        message.body = error.partial
    except NotRead:
        message.body = b""
    except (HTTPException, ValueError, OverflowError) as error:
        raise NotRead(repr(error)) from error
    message.rest = source.getvalue()[source.tell() :]


REQUEST_PARSERS: dict[str, ReferenceParser] = {"llhttp": llhttp_request, "h11": h11_request, "cpython": cpython_request}
RESPONSE_PARSERS: dict[str, ReferenceParser] = {
    "llhttp": llhttp_response,
    "h11": h11_answer,
    "cpython": cpython_response,
}
