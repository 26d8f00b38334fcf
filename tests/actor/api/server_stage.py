"""A started HTTP server with an application that says the path, and one connection to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

from api.server.channel import Channel
from api.server.http_server import ApiServer
from tests.kit.wait import wait_until

LONG = 30.0
LARGE = 8 * 1024 * 1024


class Echo:
    """Responds with the path, to `/held` only when `release` is set; to `/large` with many bytes. `/fails` is an
    error. `served` are the paths of all requests."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.reached = threading.Event()
        self.served: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        self.served.append(path)
        if path == "/fails":
            raise RuntimeError("a bug")
        if path == "/held":
            self.reached.set()
            assert self.release.wait(LONG)
        body = b"x" * LARGE if path == "/large" else f"{path};".encode()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]


class Stage:
    """A started server, and one connection to it."""

    def __init__(self) -> None:
        self.echo = Echo()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(listener.getsockname()[1])
        self.server = ApiServer(self.echo, listener, 100)
        self.server.start()
        self.client = socket.create_connection(("127.0.0.1", self.port), LONG)

    def send(self, *paths: str) -> None:
        self.client.sendall(b"".join(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode() for path in paths))

    def bodies(self, count: int) -> list[str]:
        """Of the next responses."""
        received = b""
        while received.count(b";") < count:
            data = self.client.recv(65536)
            assert data, received
            received += data
        return [part.rpartition(b"\r\n\r\n")[2].decode() for part in received.split(b";")[:-1]]

    def held(self) -> None:
        """Return when a request is being served that gets no response yet."""
        self.send("/held")
        assert self.echo.reached.wait(LONG)

    def channel(self) -> Channel:
        """The one connection, once it is accepted."""
        (channel,) = wait_until(lambda: tuple(self.server._server.active_channels.values()), "it is accepted", LONG)
        assert isinstance(channel, Channel)
        return channel

    def close(self) -> None:
        self.echo.release.set()
        self.client.close()
        self.server.close()
