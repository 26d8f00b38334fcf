"""Idle connections to origins, kept for the next request to the same host and port.

A kept connection is watched: whatever happens on it, bytes or the end, means that it can't be used any more.
"""

from __future__ import annotations

import select
import socket
from collections import defaultdict
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.forwarding.net.timer_wheel import NEVER, TimerWheel
from actors.forwarding.protocols.http.targets import Authority
from actors.net.transport import Transport

if TYPE_CHECKING:
    from actors.forwarding.upstreams.upstream import Parent

Key = tuple[str, int]


class Origin:
    """A connection to an origin, from its dialling to its end.

    `epoch` is the pool's when it was dialled; `reported` is what rules in report mode would have refused about it.
    `parent` is the parent proxy that it goes through, if any. `hop` are the field lines that requests in absolute-form
    carry for that parent, or None where requests go in origin-form. `plain`: it is a socket, and not TLS.
    `announced`: its parent was told of the client. `authenticated`: what a client sent authenticates the connection
    itself, or may. Neither of the two ever serves another client.
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
        "noted",
        "out",
        "parent",
        "plain",
        "readable",
        "reported",
        "sock",
    )

    def __init__(self, sock: Transport, key: Key, epoch: int = 0, reported: str = "") -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.key = key
        self.epoch = epoch
        self.reported = reported
        self.parent: Parent | None = None
        self.hop: bytes | None = None
        self.plain = isinstance(sock, socket.socket)
        self.out = bytearray()
        self.readable = False
        self.announced = False
        self.authenticated = False
        self.deadline = float("inf")
        self.noted = NEVER
        self._pool: Pool | None = None

    @property
    def quiet(self) -> bool:
        """Is there nothing left to send, and nothing more to read?"""
        if self.out:
            return False
        if not self.readable and self.plain:
            return True
        return self._silent()

    def _silent(self) -> bool:
        try:
            if isinstance(self.sock, socket.socket):
                self.sock.recv(1, socket.MSG_PEEK)
            else:
                self.sock.recv(1)  # there should be nothing; what TLS has to say to itself is no byte of ours
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def rest(self, pool: Pool, deadline: float) -> None:
        """It belongs to the pool now."""
        self._pool = pool
        self.deadline = deadline
        self.readable = False

    def leave(self) -> None:
        """It belongs to an exchange now."""
        self._pool = None
        self.deadline = float("inf")

    def disturbed(self, mask: int) -> None:
        """Something happened while it was idle. Being writable is nothing."""
        if mask & ~select.EPOLLOUT and self._pool is not None and (self.plain or not self._silent()):
            self._pool.discard(self)

    def expire(self) -> None:
        """It has been idle for too long."""
        if self._pool is not None:
            self._pool.discard(self)


class Pool:
    """Idle connections of one actor: the last used first, at most `limit` in all."""

    def __init__(self, loop: Loop, deadlines: TimerWheel, limit: int, kept: float) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._limit = limit
        self._kept = kept
        self._idle: defaultdict[Key, list[Origin]] = defaultdict(list)
        self.count = 0
        self.epoch = 0
        """Grows when what may be connected to has changed; older connections are not kept."""

    def set_limits(self, limit: int, kept: float) -> None:
        """For the connections that are given from now on."""
        self._limit, self._kept = limit, kept

    def take(self, target: Authority) -> Origin | None:
        """An idle connection to `target`, or None."""
        return self.take_key((target.host, target.port))

    def take_key(self, key: Key) -> Origin | None:
        """An idle connection that was given with this key, or None."""
        idle = self._idle.get(key)
        if not idle:
            return None
        origin = idle.pop()
        self.count -= 1
        origin.leave()
        return origin

    def give(self, origin: Origin) -> None:
        """Keep a connection whose last exchange ended well."""
        if self.count >= self._limit or origin.epoch != self.epoch or origin.announced or origin.authenticated:
            self.close(origin)
            return
        self._idle[origin.key].append(origin)
        self.count += 1
        origin.rest(self, self._loop.now + self._kept)
        self._loop.hand_over(origin.fd, origin.disturbed)
        self._deadlines.note(origin)

    def discard(self, origin: Origin) -> None:
        """An idle connection is of no use any more."""
        idle = self._idle[origin.key]
        idle.remove(origin)
        if not idle:
            del self._idle[origin.key]
        self.count -= 1
        self.close(origin)

    def close(self, origin: Origin) -> None:
        """Close a connection that is not in the pool."""
        self.leave(origin)
        self._loop.forget(origin.fd)
        origin.sock.close()

    def leave(self, origin: Origin) -> None:
        """A connection that is not in the pool will not come back to it."""
        origin.leave()
        self._deadlines.forget(origin)

    def flush(self) -> None:
        """Close all that is idle, and keep nothing that is in use now: what was allowed then may not be now."""
        self.epoch += 1
        for origin in [origin for idle in self._idle.values() for origin in idle]:
            self.discard(origin)
