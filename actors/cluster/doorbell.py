"""What the database announces: a connection that listens, and runs nothing else.

One that runs statements, too, may lose what comes meanwhile. A connection that is silent says nothing about whether it
is alive: who needs to know has something announced to itself, and looks when that last came.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import psycopg

from actors.cluster.connection import CONNECT, TimedConnection
from actors.cluster.errors import DatabaseUnavailable, translated


class Doorbell:
    """Listens to `channels`. `wait` is for one thread, the rest for any."""

    def __init__(self, dsn: str, place: str, channels: Sequence[str]) -> None:
        """Nothing is connected until the first `wait`. `place` is the database as people know it."""
        self._dsn, self._place, self._channels = dsn, place, channels
        self._connection: TimedConnection | None = None
        self._woken, self._wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lock = threading.Lock()
        self._closed = False

    def wait(self, seconds: float, connected: Callable[[], object] = lambda: None) -> dict[str, str]:
        """What was announced, by channel the last of it, once something was, or after so many seconds, or `wake`.

        `connected` is called when a connection begins to listen: what was announced before it didn't get. Raises
        `DatabaseError` when there is none; the next call makes a new one.
        """
        try:
            with translated(self._place):
                if self._connection is None:
                    self._connection = connection = TimedConnection.opened(self._dsn)
                    connection.run("; ".join(f'LISTEN "{each}"' for each in self._channels), None, CONNECT)
                    connected()
                return self._announced(self._connection, seconds)
        except BaseException:
            self.disconnect()
            raise

    def _announced(self, connection: TimedConnection, seconds: float) -> dict[str, str]:
        poll = select.poll()
        for each in (self._woken, connection.pgconn.socket):
            poll.register(each, select.POLLIN)
        ready = {each for each, _ in poll.poll(seconds * 1000)}
        if self._woken in ready:
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if connection.pgconn.socket in ready:
            connection.pgconn.consume_input()
            if connection.pgconn.status != psycopg.pq.ConnStatus.OK:
                raise DatabaseUnavailable(f"{self._place}: the connection that listens has ended")
        found = {}
        while announced := connection.pgconn.notifies():
            found[announced.relname.decode()] = announced.extra.decode()
        return found

    def wake(self) -> None:
        """Have `wait` return."""
        with self._lock:
            if not self._closed:
                with suppress(BlockingIOError):
                    os.write(self._wakes, b"!")

    def disconnect(self) -> None:
        """End the connection; the next `wait` makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """End it, when nothing waits."""
        self.disconnect()
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._woken)
                os.close(self._wakes)
