"""Accepting a connection at a third of the cost of `socket.accept`, and the errors of it that last.

A process without a descriptor for a new connection stops accepting for a moment. The connection stays in the kernel's
queue, so a listener that was polled again at once would be ready at once.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

from actors.bus.loop import Loop


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


def pause_accepting(loop: Loop, listener: socket.socket, error: OSError, resume: Callable[[], None]) -> bool:
    """After an error of `accept` that lasts: the listener is watched no more until `resume` is called, in a moment.

    Returns whether it is one; else the client was gone again.
    """
    if error.errno not in OUT_OF_DESCRIPTORS:
        return False
    loop.unwatch(listener.fileno())
    loop.call_later(ACCEPT_PAUSE, resume)
    return True
