"""The API's end of a change of its address: it receives a new listening socket and activates it later.

The supervisor sends the socket as a datagram with a descriptor (`actors.supervision.listeners.api`) before it replies.
It is activated when the response to the request for the change is written; without that signal, after
`ACTIVATION_TIMEOUT`.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable
from pathlib import Path

from actors.bus.loop import Loop

log = logging.getLogger(__name__)

ACTIVATION_TIMEOUT = 5.0


class ListenerReceiver:
    """Loop thread only. `on_listener` is called with each socket, once it is activated."""

    def __init__(
        self, loop: Loop, path: Path, on_listener: Callable[[socket.socket], None], timeout: float = ACTIVATION_TIMEOUT
    ) -> None:
        """Listen at `path`, in place of an earlier API process. Raises `OSError`."""
        self._timeout = timeout
        self._loop = loop
        self._on_listener = on_listener
        self._pending: socket.socket | None = None
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.setblocking(False)
        loop.watch(self._socket.fileno(), select.EPOLLIN, lambda _mask: self._receive())

    def activate(self) -> None:
        """Use the socket that has come in, if there is one: the response is written."""
        self._receive()
        if self._pending is not None:
            listener, self._pending = self._pending, None
            log.info("the management API listens at %s from now on", listener.getsockname())
            self._on_listener(listener)

    def close(self) -> None:
        """Receive no more."""
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        if self._pending is not None:
            self._pending.close()

    def _receive(self) -> None:
        try:
            _text, descriptors, _flags, _address = socket.recv_fds(self._socket, 64, 1)
        except BlockingIOError:
            return
        if not descriptors:
            log.error("listener handover arrived without a descriptor: out of file descriptors")
            return
        if self._pending is not None:
            self._pending.close()  # a still newer address
        received = self._pending = socket.socket(fileno=descriptors[0])
        self._loop.call_later(self._timeout, lambda: self.activate() if self._pending is received else None)
