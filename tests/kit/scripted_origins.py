"""Origins on loopback that do exactly what a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Self

Script = Callable[[socket.socket], None]


class Origin:
    """Runs `script` for each connection in a thread of its own; `authority` is where it listens."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._server = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._server.getsockname()[1]
        self.authority = f"127.0.0.1:{self.port}"
        self.connections = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for sock in self._open:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            sock.settimeout(30)
            self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            self._script(sock)
        except OSError:
            sock.close()


def read_head(sock: socket.socket) -> bytes:
    """Bytes up to the end of a head, or what there was before the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(65536)
        if not part:
            break
        data += part
    return data


def read_head_alone(sock: socket.socket) -> bytes:
    """A head, and not a byte of what may have come with it."""
    data = b""
    while not data.endswith(b"\r\n\r\n") and (byte := sock.recv(1)):
        data += byte
    return data


def read_all(sock: socket.socket) -> bytes:
    """Bytes up to the end."""
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def responds(*replies: bytes, then_close: bool = False) -> Script:
    """Read a head, send a reply, as often as there are replies."""

    def script(sock: socket.socket) -> None:
        for reply in replies:
            if not read_head(sock):
                return
            sock.sendall(reply)
        if then_close:
            sock.close()

    return script


def echoes(sock: socket.socket) -> None:
    """Send back what comes; end when the other side ends."""
    while data := sock.recv(65536):
        sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


def counted(body: bytes) -> bytes:
    """An answer with this body."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def notes_heads(seen: list[bytes]) -> Script:
    """Responds to requests and notes their heads."""

    def script(sock: socket.socket) -> None:
        while head := read_head(sock):
            seen.append(head)
            sock.sendall(counted(b"seen"))

    return script
