"""Accepting a connection at a third of the cost of `socket.accept`, and the errors of it that last.

A process without a descriptor for a new connection stops accepting for a moment. The connection stays in the kernel's
queue, so a listener that was polled again at once would be ready at once.
"""

from __future__ import annotations

import errno
import socket
from typing import Any


def accept(listener: socket.socket) -> tuple[socket.socket, Any]:
    """As `listener.accept()`, for a listening TCP socket: the connection and the peer's address. Raises `OSError`.

    `socket.accept` makes enums of the listener's family and type anew each time, and asks for its timeout; that costs
    twice as much as the system call. The method below it is not documented, and is what `socket.accept` itself calls.
    """
    descriptor, address = listener._accept()  # type: ignore[attr-defined]
    family = socket.AF_INET if len(address) == 2 else socket.AF_INET6
    return socket.socket(family, socket.SOCK_STREAM, 0, descriptor), address


OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of `accept` that last: of the process, of the machine, or of the kernel's memory."""
ACCEPT_PAUSE = 0.1
"""Seconds without accepting after one of them."""
