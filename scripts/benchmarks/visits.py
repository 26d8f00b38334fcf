"""Requests on a new connection each, some at a time, from whatever addresses of loopback: as fast as they end."""

from __future__ import annotations

import itertools
import select
import socket
import time
from collections.abc import Callable

from benchmarks.processes import BenchError

_BIND_ADDRESS_NO_PORT = 24
"""IP_BIND_ADDRESS_NO_PORT of ip(7), which the module `socket` doesn't have."""
WIDTH = 50
FAILED_MAX = 0.01
PATIENCE = 10.0


class Visits:
    """`request(n)` is what the nth sends, from `source(n)`. It is to ask for `Connection: close`."""

    def __init__(self, port: int, request: Callable[[int], bytes], source: Callable[[int], str]) -> None:
        self._port = port
        self._request = request
        self._source = source
        self._numbers = itertools.count()
        self._epoll = select.epoll()
        self._open: dict[int, _Visit] = {}
        self._failed = 0
        self._refusal = b""
        self.latencies: list[float] = []
        """Seconds of each from its connect to its end."""

    def run(self, seconds: float) -> list[float]:
        """Visit for so long, and wait for those under way. Raises `BenchError` when more than 1 % fail."""
        began = now = time.monotonic()
        while now - began < seconds:
            while len(self._open) < WIDTH:
                self._begin(next(self._numbers))
            self._progress()
            now = time.monotonic()
        while self._open and time.monotonic() - now < PATIENCE:
            self._progress()
        self._epoll.close()
        count = len(self.latencies) + self._failed + len(self._open)
        if self._failed + len(self._open) > FAILED_MAX * count or not self.latencies:
            raise BenchError(f"{self._failed} of {count} requests failed: {self._refusal[:300]!r}")
        return self.latencies

    def _begin(self, number: int) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        sock.bind((self._source(number), 0))
        self._open[sock.fileno()] = _Visit(sock, self._request(number))
        self._epoll.register(sock, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        sock.connect_ex(("127.0.0.1", self._port))

    def _progress(self) -> None:
        for descriptor, _mask in self._epoll.poll(0.1):
            visit = self._open[descriptor]
            if visit.advance():
                del self._open[descriptor]
                visit.sock.close()
                if visit.response[9:12] == b"200":
                    self.latencies.append(time.monotonic() - visit.since)
                else:
                    self._failed += 1
                    self._refusal = visit.response


class _Visit:
    """One connection."""

    def __init__(self, sock: socket.socket, request: bytes) -> None:
        self.sock = sock
        self.since = time.monotonic()
        self.response = b""
        self._request = request

    def advance(self) -> bool:
        """Do what can be done; True at its end."""
        try:
            if self._request:
                self.sock.send(self._request)
                self._request = b""
            while piece := self.sock.recv(65536):
                self.response += piece
        except BlockingIOError:
            return False
        except OSError:
            self.response = b""
        return True


def request(host: bytes, port: int, *fields: bytes) -> bytes:
    """A GET of `/1k` in absolute-form."""
    lines = b"".join(each + b"\r\n" for each in (*fields, b"Connection: close"))
    return b"GET http://%b:%d/1k HTTP/1.1\r\nHost: %b:%d\r\n%b\r\n" % (host, port, host, port, lines)


def one_of_many(number: int, count: int) -> str:
    """An address of loopback, one of at most 60,000."""
    number %= count
    return f"127.{1 + number // 60_000}.{number // 250 % 240}.{1 + number % 250}"
