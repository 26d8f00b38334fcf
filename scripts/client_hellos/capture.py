"""A proxy on loopback that keeps the ClientHellos of its clients; it refuses them with an alert, or relays them."""

from __future__ import annotations

import selectors
import socket
import threading
from types import TracebackType
from typing import Self

from actors.net.client_hello import UNRECOGNIZED_NAME_ALERT, BadHello, HandshakeWatch, HelloReader

TIME = 20.0
"""Seconds for a connection."""


class Capture:
    """Listens at `port`: CONNECT is accepted, to whatever host, and so is TLS at once.

    `hellos` are (host of CONNECT, octets of a hello) in the order of their coming. With `server`, a port on loopback,
    connections go there, and their second hellos are kept, too.
    """

    def __init__(self, server: int | None = None) -> None:
        self.hellos: list[tuple[str, bytes]] = []
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(TIME)
        with sock:
            try:
                self._converse(sock)
            except (OSError, BadHello) as error:
                print(f"   {error}")

    def _converse(self, sock: socket.socket) -> None:
        first, host = sock.recv(65536), ""
        if first.startswith(b"CONNECT "):
            while b"\r\n\r\n" not in first:
                first += sock.recv(65536)
            host = first.split()[1].decode().rpartition(":")[0]
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            first = sock.recv(65536)
        reader = HelloReader()
        while (hello := reader.feed(first)) is None:
            first = sock.recv(65536)
            if not first:
                return
        self.hellos.append((host, bytes(reader.data[: hello.size])))
        if self._server is None:
            sock.sendall(UNRECOGNIZED_NAME_ALERT)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        else:
            self._relay(sock, host, bytes(reader.data), hello.size)

    def _relay(self, sock: socket.socket, host: str, begin: bytes, size: int) -> None:
        later = SecondHello()
        with (
            socket.create_connection(("127.0.0.1", self._server), timeout=TIME) as server,
            selectors.DefaultSelector() as selector,
        ):
            selector.register(sock, selectors.EVENT_READ)
            selector.register(server, selectors.EVENT_READ)
            server.sendall(begin)
            later.feed(begin[size:])
            while True:
                ready = {key.fileobj for key, _ in selector.select(TIME)}
                for source, target in ((sock, server), (server, sock)):
                    data = source.recv(65536) if source in ready else None
                    if data == b"":
                        return
                    if not data:
                        continue
                    target.sendall(data)
                    if source is sock and (found := later.feed(data)):
                        self.hellos.append((host, found))


class SecondHello:
    """Finds the hello after a HelloRetryRequest in what follows the first; there may be none."""

    def __init__(self) -> None:
        self._watch = HandshakeWatch()
        self._reader = HelloReader()
        self._begun = self._over = False

    def feed(self, data: bytes) -> bytes | None:
        """The hello, once."""
        if not self._begun:
            at = self._watch.feed(data)
            self._begun, data = at >= 0, data[max(at, 0) :]
        if self._over or not self._begun:
            return None
        try:
            hello = self._reader.feed(data)
        except BadHello:  # the handshake goes on instead
            self._over = True
            return None
        self._over = hello is not None
        return None if hello is None else bytes(self._reader.data[: hello.size])
