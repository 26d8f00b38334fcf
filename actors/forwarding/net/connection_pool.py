"""Idle connections to origins, kept for the next request to the same host and port.

An idle connection is watched: any event on it, bytes or the end, makes it unusable.
"""

from __future__ import annotations

import select
import socket
from collections import defaultdict, deque
from typing import Final

from actors.bus.loop import Loop
from actors.forwarding.net.egress import BIND_ADDRESS
from actors.forwarding.net.source_address import SourceAddress
from actors.forwarding.net.timer_wheel import NEVER, TimerWheel
from actors.forwarding.protocols.failures import Failure
from actors.net.socks_wire import endpoint_of
from actors.net.transport import Transport
from actors.pools.upstream import Upstream

NOWHERE: Final = ("", "")
"""No country and no autonomous system."""

FLUSHED_AT_ONCE = 500

Key = tuple[str, int]


class OriginConnection:
    """A connection to an origin, from its dialling to its end.

    `epoch` is the pool's when it was dialled; `reported` is what rules in report mode would have refused it with.
    `upstream` is the upstream proxy that it goes through, if any. `hop` are the field lines that requests in
    absolute-form carry for that upstream, or None where requests go in origin-form. `plain`: it is a socket, not TLS.
    `announced`: a PROXY header has sent the client's address to the upstream. `authenticated`: a client's request
    authenticates the connection itself, or may. Neither of the two ever serves another client, nor does one
    whose source address was drawn at random. `source` is where it was
    made to leave from, None: from where all of the proxy do; `left_from` is the address, where one was given.
    `place` is the country and the autonomous system of its own address, where a database of places is in use.
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
        "left_from",
        "out",
        "place",
        "plain",
        "readable",
        "reported",
        "scheduled_for",
        "sock",
        "source",
        "upstream",
    )

    def __init__(self, sock: Transport, key: Key, epoch: int = 0, reported: Failure | None = None) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.key = key
        self.epoch = epoch
        self.reported = reported
        self.upstream: Upstream | None = None
        self.source: SourceAddress | None = None
        self.left_from = ""
        self.place = NOWHERE
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

    @property
    def source_rule(self) -> str:
        """What of the configuration says where it leaves from, empty where nothing does."""
        if self.source is not None:
            return self.source.rule
        return BIND_ADDRESS if self.left_from else ""

    def leaves_from(self, source: SourceAddress | None, proxy: SourceAddress) -> None:
        """Note where it was made to leave from; `proxy`: where all do that nothing else is said about."""
        self.source = source
        if source is not None or proxy.given:
            self.left_from = endpoint_of(self.sock.getsockname())[0]

    @property
    def is_single(self) -> bool:
        """Whether it never serves another client."""
        return self.announced or self.authenticated or (self.source is not None and bool(self.source.drawn))

    def park(self, pool: ConnectionPool, deadline: float) -> None:
        """It is idle in `pool` from now on, until `deadline` at most."""
        self._pool = pool
        self.deadline = deadline
        self.readable = False

    @property
    def is_idle(self) -> bool:
        """Whether it is parked."""
        return self._pool is not None

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
    """Idle connections of one actor, the last used first: at most `limit` in all, each for `idle_seconds` seconds."""

    def __init__(self, loop: Loop, timers: TimerWheel, limit: int, idle_seconds: float) -> None:
        self._loop = loop
        self._timers = timers
        self._limit = self._whole = limit
        self._workers = 1
        self._idle_seconds = idle_seconds
        self._idle: defaultdict[Key, list[OriginConnection]] = defaultdict(list)
        self._flushed: deque[OriginConnection] = deque()
        """Those of previous epochs that are still to be closed."""
        self.count = 0
        self.epoch = 0
        """Grows when what may be connected to has changed; connections of earlier epochs are not kept."""

    def set_limits(self, limit: int, idle_seconds: float) -> None:
        """Limits for connections that are released from now on."""
        self._whole, self._idle_seconds = limit, idle_seconds
        self._limit = -(-limit // self._workers)

    def divide_among(self, workers: int) -> None:
        """So many workers of the proxy have the limit together, each an even part of it."""
        self._workers = max(1, workers)
        self._limit = -(-self._whole // self._workers)

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
        may_be_single = origin.source is not None or origin.announced or origin.authenticated
        if self.count >= self._limit or origin.epoch != self.epoch or (may_be_single and origin.is_single):
            self.close(origin)
            return
        self._idle[origin.key].append(origin)
        self.count += 1
        origin.park(self, self._loop.now + self._idle_seconds)
        self._loop.set_handler(origin.fd, origin.on_idle_event)
        self._timers.schedule(origin)

    def discard(self, origin: OriginConnection) -> None:
        """Remove an idle connection and close it."""
        if origin.epoch != self.epoch:
            self.close(origin)  # it is flushed already, and waits for its batch
            return
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
        """Begin a new epoch, since what was allowed before may not be now: no idle connection is used again.

        They are closed `FLUSHED_AT_ONCE` in a turn of the loop.
        """
        self.epoch += 1
        waits = bool(self._flushed)
        self._flushed.extend(origin for idle in self._idle.values() for origin in idle)
        self._idle.clear()
        self.count = 0
        if not waits:
            self._close_flushed()

    def _close_flushed(self) -> None:
        for _ in range(min(FLUSHED_AT_ONCE, len(self._flushed))):
            origin = self._flushed.popleft()
            if origin.is_idle:  # else it has closed itself
                self.close(origin)
        if self._flushed:
            self._loop.call_soon(self._close_flushed)
