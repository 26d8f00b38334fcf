"""A client that speaks to a proxy byte by byte, and reads what comes back."""

from __future__ import annotations

import base64
import socket
from http.client import HTTPResponse
from types import TracebackType
from typing import Self


class Answer:
    """A status, the fields by lower-case name, and the body (None until read to its end)."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.version = response.version
        self.fields = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    def __repr__(self) -> str:
        return f"Answer({self.status}, {self.fields}, {self.body[:200]!r})"


class Client:
    """One connection to a proxy. Every wait ends after `timeout` seconds with an error."""

    def __init__(self, port: int, timeout: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes | str) -> None:
        self.socket.sendall(data.encode() if isinstance(data, str) else data)

    def answer(self, method: str = "GET") -> Answer:
        """The next response with its body. For one at a time: what came with it of a second one would be lost."""
        response = HTTPResponse(self.socket, method=method)
        response.begin()
        return Answer(response)

    def head(self) -> bytes:
        """Exactly one head, with its empty line."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = self.socket.recv(1)
            assert piece, f"closed after {head!r}"
            head += piece
        return head

    def exactly(self, count: int) -> bytes:
        """So many bytes, or fewer when the other side ends."""
        data = bytearray()
        while len(data) < count and (piece := self.socket.recv(min(1 << 18, count - len(data)))):
            data += piece
        return bytes(data)

    def rest(self) -> bytes:
        """All until the other side ends; a reset counts as an end."""
        data = b""
        try:
            while piece := self.socket.recv(1 << 16):
                data += piece
        except ConnectionResetError:
            return data
        return data

    def get(self, url: str, *fields: str) -> Answer:
        """An absolute-form GET on this connection."""
        authority = url.split("/")[2]
        self.send("\r\n".join([f"GET {url} HTTP/1.1", f"Host: {authority}", *fields, "", ""]))
        return self.answer()

    def connect(self, target: str, *fields: str) -> bytes:
        """CONNECT to `host:port`: the head of the response."""
        self.send("\r\n".join([f"CONNECT {target} HTTP/1.1", f"Host: {target}", *fields, "", ""]))
        return self.head()


def basic(user: str, password: str) -> str:
    """The line of a request with this user and password."""
    return "Proxy-Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
