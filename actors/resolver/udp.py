"""One query by UDP, from a socket of its own: so its source port is one that the kernel has picked at random.

The socket is connected: the kernel drops what comes from any other address or port.
"""

from __future__ import annotations

import secrets
import select
import socket
from collections.abc import Callable

from actors.bus.loop import Loop
from actors.resolver.wire import Query

AT_ONCE = 16
FORGED_MAX = 64
"""Messages that are no response, after which the query is taken to be under attack and given up."""

Received = Callable[[bytes, int], bool]
Lost = Callable[[str], None]


class Datagram:
    """`received` gets messages and the query's id until it returns True; `lost` gets why no response can come.

    Neither is called in the very call that makes it.
    """

    def __init__(self, loop: Loop, server: tuple[str, int], query: Query, received: Received, lost: Lost) -> None:
        self._loop = loop
        self._received = received
        self._lost: Lost | None = lost
        self._forged = 0
        self._number = secrets.randbits(16)
        self._socket: socket.socket | None = None
        try:
            self._send(server, query)
        except OSError as error:
            why = error.strerror or str(error)
            loop.call_soon(lambda: self._fail(why))

    def close(self) -> None:
        """Forget it; nothing is called any more."""
        self._lost = None
        sock, self._socket = self._socket, None
        if sock is not None:
            self._loop.unwatch_closed(sock.fileno())
            sock.close()

    def _send(self, server: tuple[str, int], query: Query) -> None:
        host, _, zone = server[0].partition("%")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        sock.connect((host, server[1], 0, socket.if_nametoindex(zone)) if zone else (host, server[1]))
        self._loop.watch(sock.fileno(), select.EPOLLIN, self._on_readable)
        sock.send(query.with_id(self._number))

    def _fail(self, why: str) -> None:
        lost = self._lost
        self.close()
        if lost is not None:
            lost(why)

    def _on_readable(self, _mask: int) -> None:
        for _ in range(AT_ONCE):
            sock = self._socket
            if sock is None:
                return
            try:
                message = sock.recv(65535)
            except BlockingIOError:
                return
            except OSError as error:  # an ICMP message: nothing listens there
                self._fail(error.strerror or str(error))
                return
            if self._received(message, self._number):
                return
            self._forged += 1
            if self._forged >= FORGED_MAX:
                self._fail("too many forged responses")
