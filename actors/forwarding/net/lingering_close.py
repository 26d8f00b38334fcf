"""The end of a connection whose last response must be readable (RFC 9112 9.6, "lingering close").

Closing a socket with unread bytes makes the kernel send a reset, and a reset can discard the response before the
client has read it. So sending is ended first, and for a moment whatever comes is read and thrown away.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

from actors.bus.loop import Loop
from actors.forwarding.net.timer_wheel import NEVER, TimerWheel
from actors.net.transport import Transport

SECONDS: Final = 2.0
BYTES_MAX: Final = 256 * 1024
AT_ONCE_MAX: Final = 256
"""Connections that linger at the same time; above that they are closed at once, so that a flood holds nothing."""


class LingeringClose:
    """The connections of one actor that linger. `on_crash` is called with whose connection it was and the exception."""

    def __init__(self, loop: Loop, timers: TimerWheel, on_crash: Callable[[str, Exception], None]) -> None:
        self.loop = loop
        self.timers = timers
        self.on_crash = on_crash
        self._lingering: set[_Lingering] = set()

    def close(self, sock: Transport, client_ip: str) -> None:
        """End the sending side of a watched socket, and close it once the client has ended too."""
        try:
            sock.shutdown(socket.SHUT_WR)
            full = len(self._lingering) >= AT_ONCE_MAX
        except OSError:
            full = True  # the client is gone
        if full:
            self.loop.unwatch_closed(sock.fileno())
            sock.close()
            return
        lingering = _Lingering(self, sock, client_ip)
        self._lingering.add(lingering)
        self.loop.set_handler(sock.fileno(), lingering.discard)
        self.timers.schedule(lingering)
        lingering.discard(0)

    def remove(self, lingering: _Lingering) -> None:
        """Remove a connection that is closed."""
        self._lingering.discard(lingering)
        self.timers.cancel(lingering)

    def __len__(self) -> int:
        """Connections that linger now."""
        return len(self._lingering)


class _Lingering:
    """Reads and discards."""

    __slots__ = ("_closer", "_left", "_sock", "client_ip", "deadline", "scheduled_for")

    def __init__(self, closer: LingeringClose, sock: Transport, client_ip: str) -> None:
        self.client_ip = client_ip
        self._closer = closer
        self._sock = sock
        self._left = BYTES_MAX
        self.deadline = closer.loop.now + SECONDS
        self.scheduled_for = NEVER

    def discard(self, _mask: int) -> None:
        """Read and discard what has come."""
        try:
            self._discard()
        except Exception as error:  # noqa: BLE001 - as `isolated`, without a call more
            self.crashed(error)

    def _discard(self) -> None:
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
        self._closer.on_crash(f"a connection of {self.client_ip}", error)
        self.expire()

    def expire(self) -> None:
        """Close it, once."""
        if self.deadline != NEVER:
            self.deadline = NEVER
            self._closer.remove(self)
            self._closer.loop.unwatch_closed(self._sock.fileno())
            self._sock.close()
