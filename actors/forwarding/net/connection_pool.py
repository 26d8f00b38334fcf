"""Idle connections to origins, kept for the next request to the same host and port.

An idle connection is watched: any event on it, bytes or the end, makes it unusable.
"""

from __future__ import annotations

import select
import socket
from collections import defaultdict

from actors.bus.loop import Loop
from actors.forwarding.net.timer_wheel import NEVER, TimerWheel
from actors.forwarding.upstream import Upstream
from actors.net.transport import Transport

Key = tuple[str, int]


class OriginConnection:
    """A connection to an origin, from its dialling to its end.

    `epoch` is the pool's when it was dialled; `reported` is what rules in report mode would have refused about it.
    `upstream` is the upstream proxy that it goes through, if any. `hop` are the field lines that requests in
    absolute-form carry for that upstream, or None where requests go in origin-form. `plain`: it is a socket, not TLS.
    `announced`: a PROXY header has sent the client's address to the upstream. `authenticated`: a client's request
    authenticates the connection itself, or may. Neither of the two ever serves another client.
    """

    __slots__ = (
        "_pool",
        "announced",
        "authenticated",
        "deadline",
        "epoch",
        "fd",
        "hop",
        "key",
        "out",
        "plain",
        "readable",
        "reported",
        "scheduled_for",
        "sock",
        "upstream",
    )

    def __init__(self, sock: Transport, key: Key, epoch: int = 0, reported: str = "") -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.key = key
        self.epoch = epoch
        self.reported = reported
        self.upstream: Upstream | None = None
        self.hop: bytes | None = None
        self.plain = isinstance(sock, socket.socket)
        self.out = bytearray()
        self.readable = False
        self.announced = False
        self.authenticated = False
        self.deadline = NEVER
        self.scheduled_for = NEVER
        self._pool: ConnectionPool | None = None

    @property
    def is_reusable(self) -> bool:
        """True while nothing is left to send and nothing more can be read."""
        if self.out:
            return False
        if not self.readable and self.plain:
            return True
        return self._has_nothing_to_read()

    def _has_nothing_to_read(self) -> bool:
        try:
            if isinstance(self.sock, socket.socket):
                self.sock.recv(1, socket.MSG_PEEK)
            else:
                self.sock.recv(1)  # there should be no byte; TLS records of its own are no data
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def park(self, pool: ConnectionPool, deadline: float) -> None:
        """It is idle in `pool` from now on, until `deadline` at most."""
        self._pool = pool
        self.deadline = deadline
        self.readable = False

    def unpark(self) -> None:
        """It is no longer idle."""
        self._pool = None
        self.deadline = NEVER

    def on_idle_event(self, mask: int) -> None:
        """Close it when anything but becoming writable happened while it was idle."""
        if mask & ~select.EPOLLOUT and self._pool is not None and (self.plain or not self._has_nothing_to_read()):
            self._pool.discard(self)

    def expire(self) -> None:
        """Close it after its time in the pool."""
        if self._pool is not None:
            self._pool.discard(self)


class ConnectionPool:
    """Idle connections of one actor, the last used first: at most `limit` in all, each for `kept` seconds."""

    def __init__(self, loop: Loop, timers: TimerWheel, limit: int, kept: float) -> None:
        self._loop = loop
        self._timers = timers
        self._limit = limit
        self._kept = kept
        self._idle: defaultdict[Key, list[OriginConnection]] = defaultdict(list)
        self.count = 0
        self.epoch = 0
        """Grows when what may be connected to has changed; connections of earlier epochs are not kept."""

    def set_limits(self, limit: int, kept: float) -> None:
        """Limits for connections that are released from now on."""
        self._limit, self._kept = limit, kept

    def acquire(self, key: Key) -> OriginConnection | None:
        """The idle connection that was released last with this key, or None."""
        idle = self._idle.get(key)
        if not idle:
            return None
        origin = idle.pop()
        self.count -= 1
        origin.unpark()
        return origin

    def release(self, origin: OriginConnection) -> None:
        """Keep a connection whose last exchange ended well, or close it when it must not be kept."""
        if self.count >= self._limit or origin.epoch != self.epoch or origin.announced or origin.authenticated:
            self.close(origin)
            return
        self._idle[origin.key].append(origin)
        self.count += 1
        origin.park(self, self._loop.now + self._kept)
        self._loop.set_handler(origin.fd, origin.on_idle_event)
        self._timers.schedule(origin)

    def discard(self, origin: OriginConnection) -> None:
        """Remove an idle connection and close it."""
        idle = self._idle[origin.key]
        idle.remove(origin)
        if not idle:
            del self._idle[origin.key]
        self.count -= 1
        self.close(origin)

    def close(self, origin: OriginConnection) -> None:
        """Close a connection that is not idle here."""
        self.detach(origin)
        self._loop.unwatch_closed(origin.fd)
        origin.sock.close()

    def detach(self, origin: OriginConnection) -> None:
        """Drop what the pool holds for a connection in use that will not be released."""
        origin.unpark()
        self._timers.cancel(origin)

    def flush(self) -> None:
        """Close all idle connections, and begin a new epoch: what was allowed before may not be now."""
        self.epoch += 1
        for origin in [origin for idle in self._idle.values() for origin in idle]:
            self.discard(origin)
