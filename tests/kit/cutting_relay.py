"""A relay to PostgreSQL that knows where statements begin, and cuts the connection before one or behind it.

In place of the connection alone it may end what is at one of its ends: `end` gets the port of the connection to the
server, and is called at that moment.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Self

Where = Literal["before", "behind"]
_HEADER = 5
"""Octets of a message's type and length; the first message has no type (PostgreSQL, Frontend/Backend Protocol)."""


def _nothing(_port: int) -> None:
    """End the connection alone."""


class CuttingRelay:
    """Relays from a port of its own. `statements` counts the texts that clients have sent."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.statements = 0
        self._cut_at, self._where = 0, "before"
        self._end: Callable[[int], object] = _nothing
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._listener.close()

    def cut(self, after: int, where: Where, end: Callable[[int], object] = _nothing) -> None:
        """Cut before the statement that is so many behind the last one, or when the server has responded to it."""
        self._cut_at, self._where, self._end = self.statements + after, where, end

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                pair = _Pair(client, server)
                threading.Thread(target=self._to_server, args=[pair], daemon=True).start()
                threading.Thread(target=self._to_client, args=[pair], daemon=True).start()

    def _to_server(self, pair: _Pair) -> None:
        with pair, suppress(EOFError, OSError):
            pair.server.sendall(_message(pair.client, 0))
            while True:
                message = _message(pair.client, 1)
                if message[:1] == b"Q":
                    self.statements += 1
                    if self.statements == self._cut_at:
                        if self._where == "before":
                            self._end(pair.server.getsockname()[1])
                            return
                        pair.is_cut = True
                pair.server.sendall(message)

    def _to_client(self, pair: _Pair) -> None:
        with pair, suppress(OSError):
            while data := pair.server.recv(65536):
                if pair.is_cut:
                    self._end(pair.server.getsockname()[1])
                    return
                pair.client.sendall(data)


class _Pair:
    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.is_cut = False

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_error: object) -> None:
        for each in (self.client, self.server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _message(sock: socket.socket, type_length: int) -> bytes:
    head = _exactly(sock, _HEADER - 1 + type_length)
    return head + _exactly(sock, int.from_bytes(head[type_length:]) - 4)


def _exactly(sock: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = sock.recv(count - len(found))
        if not data:
            raise EOFError
        found += data
    return found
