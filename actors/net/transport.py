"""A connection as the code that drives it needs it: a plain non-blocking socket, or TLS on one (`tls_stream`)."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from typing import Any, Protocol


class Transport(Protocol):
    """The methods of a socket that are used here. All raise `OSError` when the connection is broken."""

    def recv(self, size: int, /) -> bytes:
        """Bytes, `b""` for the end; raises `BlockingIOError` when there are none now."""

    def send(self, data: bytes | memoryview, /) -> int:
        """How many were taken; raises `BlockingIOError` when none can be now."""

    def shutdown(self, how: int, /) -> None:
        """End the sending direction."""

    def getsockname(self) -> Any:
        """getsockname(2)."""

    def getpeername(self) -> Any:
        """getpeername(2)."""

    def setsockopt(self, level: int, option: int, value: bytes, /) -> None:
        """setsockopt(2)."""

    def fileno(self) -> int:
        """The descriptor, -1 when it is closed."""

    def close(self) -> None:
        """Close it."""


def unsent(fd: int) -> int:
    """Bytes that the kernel holds for the peer: not sent yet, or not acknowledged (tcp(7), SIOCOUTQ)."""
    return int(struct.unpack("i", fcntl.ioctl(fd, termios.TIOCOUTQ, b"\0" * 4))[0])


def reset_on_close(transport: Transport) -> None:
    """Make closing it a reset, so that the peer can't take a part for the whole."""
    transport.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
