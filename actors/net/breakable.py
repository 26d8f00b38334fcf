"""A connection with an end: another thread breaks it, and what waits for its peer gets an error, whatever that sends.

A timeout of a socket is that of one read. `http.client` reads on for as long as lines of a head or responses with
status 100 come, so a peer that always has one more octet would never be left otherwise.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Breakable:
    """The connection of one request; `adopt` has it, `abort` may be called by another thread at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self.broken = False
        """Whether `abort` was called: a response may be cut short then, even if it looks whole."""

    def adopt(self, sock: socket.socket) -> socket.socket:
        """`sock`, which takes the place of one before. Raises `TimeoutError` if the request was aborted already."""
        with self._lock:
            if self._sock is not None:
                self._sock.close()
            self._sock = sock.dup()
            if self.broken:
                sock.close()
                raise TimeoutError("no whole response in time")
        return sock

    def abort(self) -> None:
        """End the request."""
        with self._lock:
            self.broken = True
            if self._sock is not None:
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return  # the peer was faster

    def release(self) -> None:
        """The request is over."""
        with self._lock:
            if self._sock is not None:
                self._sock.close()
                self._sock = None


@contextmanager
def within(seconds: float) -> Iterator[Breakable]:
    """A connection that is broken after so many seconds, and released at the end of the block."""
    connection = Breakable()
    timer = threading.Timer(seconds, connection.abort)
    timer.daemon = True
    timer.start()
    try:
        yield connection
    finally:
        timer.cancel()
        connection.release()
