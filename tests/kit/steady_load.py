"""Load while something is done to the product: callers that connect anew again and again, and what became of it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.kit.wait import wait_until

PATIENCE = 60.0
"""Seconds that a caller waits: connections may queue while a service restarts, but none may be refused."""
BREATH = 0.05
"""Seconds from one call of a caller to the next: five callers without it take a core for themselves."""

Knock = Callable[[], object]


class Knocking:
    """A thread for each of `knocks`, which calls it until the end. What one raises is a failure.

    `inside` is entered by each thread: the network that it is to call in.
    """

    def __init__(
        self,
        *knocks: Knock,
        inside: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.failures: list[str] = []
        self.counts = [0] * len(knocks)
        self.longest = 0.0
        self._inside = inside
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._call, args=(number, knock), daemon=True)
            for number, knock in enumerate(knocks)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.wait_for_more()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait_for_more()
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE + 5)

    def wait_for_more(self, more: int = 3) -> None:
        """Return when each of them has got through so many times from now on."""
        before = list(self.counts)

        def through() -> bool:
            return bool(self.failures) or all(now >= then + more for now, then in zip(self.counts, before, strict=True))

        wait_until(through, "all callers get through", PATIENCE + 5)

    def _call(self, number: int, knock: Knock) -> None:
        with self._inside():
            while not self._over.is_set():
                began = time.monotonic()
                try:
                    knock()
                except (OSError, AssertionError, ValueError) as error:
                    self.failures.append(f"caller {number} after {time.monotonic() - began:.2f} s: {error!r}")
                self.counts[number] += 1
                self.longest = max(self.longest, time.monotonic() - began)
                time.sleep(BREATH)


def through_proxy(port: int, url: str) -> Knock:
    """A new connection to a proxy of protocol `http`, and one request on it."""
    return lambda: _exchange(port, f"GET {url} HTTP/1.1\r\nHost: {url.split('/')[2]}\r\nConnection: close\r\n\r\n")


def of_api(port: int, path: str = "/health") -> Knock:
    """A new connection to the management API, and one request on it."""
    return lambda: _exchange(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")


def by_tunnel(port: int, target: str) -> Knock:
    """A new tunnel (CONNECT) to an HTTP origin, and one request in it."""

    def call() -> None:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
            client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            response = _read(client, until=b"\r\n\r\n")
            assert response.startswith(b"HTTP/1.1 200"), response
            client.sendall(f"GET /hello HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n".encode())
            response = _read(client)
            assert response.startswith(b"HTTP/1.1 200"), response

    return call


def _exchange(port: int, request: str) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall(request.encode())
        response = _read(client)
        assert response.startswith(b"HTTP/1.1 200"), response


def _read(client: socket.socket, until: bytes | None = None) -> bytes:
    """All until the end, or until these bytes have come."""
    response = b""
    while (until is None or until not in response) and (piece := client.recv(1 << 16)):
        response += piece
    return response
