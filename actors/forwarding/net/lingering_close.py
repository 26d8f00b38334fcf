"""The end of a connection whose last words must be readable (RFC 9112 9.6, "lingering close").

Closing a socket with unread bytes makes the kernel send a reset, and a reset can take the answer away from the client
before it has read it. So sending is ended first, and for a moment whatever comes is read and thrown away.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from actors.forwarding.isolation import isolated
from actors.forwarding.net.timer_wheel import NEVER
from actors.net.transport import Transport

if TYPE_CHECKING:
    from actors.forwarding.context import Serving

SECONDS = 2.0
BYTES_MAX = 256 * 1024
AT_ONCE_MAX = 256
"""Connections that linger at the same time; above that they are closed at once, so that a flood holds nothing."""


def linger(serving: Serving, sock: Transport, client_ip: str) -> None:
    """End the sending side of a watched socket, and close it once the client has ended too."""
    try:
        sock.shutdown(socket.SHUT_WR)
        full = serving.lingering >= AT_ONCE_MAX
    except OSError:
        full = True  # the client is gone
    if full:
        serving.loop.forget(sock.fileno())
        sock.close()
        return
    lingering = _Lingering(serving, sock, client_ip)
    serving.loop.hand_over(sock.fileno(), lingering.discard)
    serving.deadlines.schedule(lingering)
    lingering.discard(0)


class _Lingering:
    """Reads and throws away."""

    __slots__ = ("_left", "_serving", "_sock", "client_ip", "deadline", "scheduled_for")

    def __init__(self, serving: Serving, sock: Transport, client_ip: str) -> None:
        self.client_ip = client_ip
        self._serving = serving
        self._sock = sock
        self._left = BYTES_MAX
        serving.lingering += 1
        self.deadline = serving.loop.now + SECONDS
        self.scheduled_for = NEVER

    @isolated
    def discard(self, _mask: int) -> None:
        """Something came."""
        while self._left > 0:
            try:
                data = self._sock.recv(16 * 1024)
            except BlockingIOError:
                return
            except OSError:
                break
            if not data:
                break
            self._left -= len(data)
        self.expire()

    def crashed(self, error: Exception) -> None:
        """See `isolation`."""
        self._serving.count_crash(f"a connection of {self.client_ip}", error)
        self.expire()

    def expire(self) -> None:
        """Long enough."""
        if self.deadline != float("inf"):
            self.deadline = float("inf")
            self._serving.lingering -= 1
            self._serving.deadlines.cancel(self)
            self._serving.loop.forget(self._sock.fileno())
            self._sock.close()
