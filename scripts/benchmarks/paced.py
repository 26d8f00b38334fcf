"""Requests and tunnels at a steady pace with churn: an open loop, so a slow response delays no later request.

Kept connections carry a few requests each and are then replaced: every second one is ended by the client, the others
by the proxy on `Connection: close`. Tunnels are opened at their own pace, used for one request and ended a while later.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.peers import Subject
from benchmarks.processes import BenchError
from benchmarks.tunnels import open_tunnel

BODY = 1024
"""Bytes of the origin's `/1k`."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is sent: requests each second, how many on one connection, and tunnels each second."""

    requests: int = 5000
    per_connection: int = 20
    tunnels: int = 20
    open_tunnels: int = 100
    heads: int = 1
    """How many different heads the requests have."""
    connections: int = 200
    """At most; when all are busy, requests that are due wait."""


@dataclass(slots=True)
class Sent:
    """What became of it. `latencies` are seconds, one of a hundred requests."""

    responded: int = 0
    failed: int = 0
    connections: int = 0
    tunnels: int = 0
    latencies: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Connection:
    sock: socket.socket
    left: int
    asks_close: bool
    since: float = 0.0
    response: bytes = b""


class Generator:
    """Sends through one proxy to `/1k` of the origin; call `run` once, then `close`."""

    def __init__(self, subject: Subject, origin: int, pace: Pace) -> None:
        self.sent = Sent()
        self._subject = subject
        self._origin = origin
        self._pace = pace
        target = b"GET http://127.0.0.1:%d/1k HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % (origin, origin)
        numbered = [b"X-Number: %d\r\n" % number for number in range(pace.heads)] if pace.heads > 1 else [b""]
        self._requests = [target + each + b"\r\n" for each in numbered]
        self._last_requests = [target + each + b"Connection: close\r\n\r\n" for each in numbered]
        self._begun = 0
        self._epoll = select.epoll()
        self._idle: list[_Connection] = []
        self._busy: dict[int, _Connection] = {}
        self._tunnels: deque[socket.socket] = deque()

    def run(self, seconds: float, sample: Callable[[float], None], period: float) -> None:
        """Send for so long; `sample` is called each `period` seconds with the seconds since the begin."""
        began = now = time.monotonic()
        begun = sampled = 0
        while now - began < seconds:
            due = int((now - began) * self._pace.requests)
            while begun < due and self._begin():
                begun += 1
            self._open_tunnels(int((now - began) * self._pace.tunnels))
            self._receive_responses(0.001)
            now = time.monotonic()
            if now - began >= (sampled + 1) * period:
                sampled += 1
                sample(now - began)
        while self._busy and time.monotonic() - now < 10:
            self._receive_responses(0.1)

    def _begin(self) -> bool:
        """Send one request; False when every connection that there may be is busy."""
        if not self._idle and len(self._busy) >= self._pace.connections:
            return False
        connection = self._idle.pop() if self._idle else self._connect()
        connection.since = time.monotonic()
        last = connection.left == 1 and connection.asks_close
        requests = self._last_requests if last else self._requests
        self._begun += 1
        try:
            connection.sock.send(requests[self._begun % len(requests)])
        except OSError:
            self._failed(connection)
            return True
        self._busy[connection.sock.fileno()] = connection
        return True

    def _connect(self) -> _Connection:
        sock = socket.create_connection(("127.0.0.1", self._subject.port), 10)
        sock.setblocking(False)
        self._epoll.register(sock, select.EPOLLIN)
        self.sent.connections += 1
        return _Connection(sock, self._pace.per_connection, asks_close=self.sent.connections % 2 == 0)

    def _receive_responses(self, timeout: float) -> None:
        for descriptor, _ in self._epoll.poll(timeout):
            connection = self._busy.get(descriptor)
            if connection is None:  # the proxy ended an idle one
                self._drop_idle(descriptor)
            else:
                self._read(connection)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.sock.recv(8192)
        except OSError:
            data = b""
        if not data:
            self._failed(connection)
            return
        connection.response += data
        end = connection.response.find(b"\r\n\r\n")
        if end >= 0 and len(connection.response) >= end + 4 + BODY:
            self._responded(connection)

    def _responded(self, connection: _Connection) -> None:
        if connection.response[9:12] != b"200":
            self._failed(connection)
            return
        self.sent.responded += 1
        if self.sent.responded % 100 == 0:
            self.sent.latencies.append(time.monotonic() - connection.since)
        connection.response = b""
        connection.left -= 1
        del self._busy[connection.sock.fileno()]
        if connection.left:
            self._idle.append(connection)
        else:
            connection.sock.close()

    def _failed(self, connection: _Connection) -> None:
        self.sent.failed += 1
        self._busy.pop(connection.sock.fileno(), None)
        connection.sock.close()

    def _drop_idle(self, descriptor: int) -> None:
        for connection in self._idle:
            if connection.sock.fileno() == descriptor:
                self._idle.remove(connection)
                connection.sock.close()
                return

    def _open_tunnels(self, due: int) -> None:
        while self.sent.tunnels < due:
            self.sent.tunnels += 1
            try:
                tunnel = open_tunnel(self._subject, self._origin)
                tunnel.send(b"GET /1k HTTP/1.1\r\nHost: origin\r\n\r\n")
            except (BenchError, OSError):
                self.sent.failed += 1
                continue
            self._tunnels.append(tunnel)
            if len(self._tunnels) > self._pace.open_tunnels:
                self._tunnels.popleft().close()

    def close(self) -> None:
        """End all that is open."""
        for connection in [*self._idle, *self._busy.values()]:
            connection.sock.close()
        for tunnel in self._tunnels:
            tunnel.close()
        self._epoll.close()
