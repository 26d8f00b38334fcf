"""A peer on loopback that responds to what comes, and whose response has no end."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

from tests.kit.wait import wait_until


class EndlessPeer:
    """For `with`: sends `head`, then `more` again and again. At the end of the block each client has left."""

    def __init__(self, head: bytes, more: bytes) -> None:
        self._head = head
        self._more = more
        self._over = threading.Event()
        self._clients: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                wait_until(lambda: not any(each.is_alive() for each in self._clients), "clients have left", 30.0)
        finally:
            self._over.set()
            self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the end of the block
            while True:
                client, _ = self._listener.accept()
                self._clients.append(threading.Thread(target=self._respond, args=(client,), daemon=True))
                self._clients[-1].start()

    def _respond(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):  # it has left
            client.recv(65_536)
            client.sendall(self._head)
            while not self._over.wait(0.01):
                client.sendall(self._more)
