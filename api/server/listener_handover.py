"""The API's end of a change of its address: a new listening socket comes in, and is taken when it is time.

The supervisor sends it as a datagram with a descriptor (`actors.supervision.listeners.api`) before it answers. It is
time when the answer to the request that asked for the change is written; should nobody ever say so, after
`LONGEST_WAIT`.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable
from pathlib import Path

from actors.bus.loop import Loop

log = logging.getLogger(__name__)

LONGEST_WAIT = 5.0


class ListenerReceiver:
    """Loop thread only. `take` is called with each socket that comes in, once it is time."""

    def __init__(
        self, loop: Loop, path: Path, take: Callable[[socket.socket], None], longest_wait: float = LONGEST_WAIT
    ) -> None:
        """Listen at `path`, in place of an API process before this one. Raises `OSError`."""
        self._longest_wait = longest_wait
        self._loop = loop
        self._take = take
        self._waiting: socket.socket | None = None
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.setblocking(False)
        loop.watch(self._socket.fileno(), select.EPOLLIN, lambda _mask: self._receive())

    def pass_through(self) -> None:
        """The answer is written: take what has come in."""
        self._receive()
        if self._waiting is not None:
            taken, self._waiting = self._waiting, None
            log.info("the management API listens at %s from now on", taken.getsockname())
            self._take(taken)

    def close(self) -> None:
        """Nothing comes in any more."""
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        if self._waiting is not None:
            self._waiting.close()

    def _receive(self) -> None:
        try:
            _text, descriptors, _flags, _address = socket.recv_fds(self._socket, 64, 1)
        except BlockingIOError:
            return
        if not descriptors:
            log.error("listener handover arrived without a descriptor: out of file descriptors")
            return
        if self._waiting is not None:
            self._waiting.close()  # a still newer address
        fresh = self._waiting = socket.socket(fileno=descriptors[0])
        self._loop.call_later(self._longest_wait, lambda: self.pass_through() if self._waiting is fresh else None)
