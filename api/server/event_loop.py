"""The loop of the server's thread: one epoll for all connections, in place of waitress' loop.

That one asks each connection in each turn what it waits for, and makes a new poll of the answers. Here a connection is
watched once, when it is accepted, and asked again after something happened to it.

What is watched may be more than what is awaited: while a request is served nothing is to be read, and as a rule nothing
comes. Only when something does come is the connection left out, until the thread that serves it wakes the loop. So a
client that sends one request after the other costs no system call of epoll.
"""

from __future__ import annotations

import select
from typing import Any, Protocol

from waitress import wasyncore

READ = select.EPOLLIN
"""Without EPOLLPRI: TCP's urgent data stay pending until something follows them, so each wait would end at once."""
ENDED = select.EPOLLHUP | select.EPOLLERR


class Watched(Protocol):
    """A socket or pipe of waitress."""

    _fileno: int | None
    accepting: bool

    def readable(self) -> bool:
        """Whether it awaits something to read, or a connection."""

    def writable(self) -> bool:
        """Whether it has something to send, or is to be closed."""


class EventLoop(dict[int, Any]):
    """What is watched, by descriptor: the `map` that waitress adds its sockets to and deletes them from.

    All but `watches` is for one thread at a time: the one that makes the server, then the server's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._epoll = select.epoll()
        self._masks: dict[int, int] = {}
        self.outdated = False
        """Whether all are asked what they wait for before the next wait."""

    def __setitem__(self, fd: int, watched: Watched) -> None:
        self._watch(fd, READ)
        super().__setitem__(fd, watched)

    def __delitem__(self, fd: int) -> None:
        super().__delitem__(fd)
        self._watch(fd, 0)

    def clear(self) -> None:
        """Watch nothing any more, which ends the loop."""
        super().clear()
        self._masks.clear()
        self._epoll.close()

    def watches(self, fd: int | None) -> bool:
        """Whether something to read would be noticed. Thread-safe."""
        return bool(self._masks.get(-1 if fd is None else fd, 0) & READ)

    def turn(self, seconds: float) -> None:
        """Wait for events, at most so long, and handle them."""
        if self.outdated:
            self.outdated = False
            for watched in tuple(self.values()):
                self.ask(watched)
        ready = [(self[fd], fd, events) for fd, events in self._epoll.poll(seconds) if fd in self]
        for watched, fd, events in ready:
            if fd in self and self[fd] is watched:  # another one may have its descriptor by now
                self._handle(watched, fd, events)

    def ask(self, watched: Watched) -> None:
        """Watch it for what it waits for now. Reading goes on being watched while it waits for nothing."""
        fd = watched._fileno
        if fd is None:
            return
        wanted = _wanted(watched)
        if wanted or self._masks.get(fd) != READ:
            self._watch(fd, wanted)

    def _handle(self, watched: Watched, fd: int, events: int) -> None:
        wanted = _wanted(watched)
        if not wanted:
            self._watch(fd, 0)  # first, then ask once more: a thread may have finished its request in between
            self._watch(fd, _wanted(watched))
            return
        wasyncore.readwrite(watched, events & (wanted | ENDED))
        if self.get(fd) is watched:
            self.ask(watched)

    def _watch(self, fd: int, mask: int) -> None:
        before = self._masks.get(fd, 0)
        if mask == before:
            return
        if not mask:
            del self._masks[fd]
            self._epoll.unregister(fd)
            return
        if before:
            self._epoll.modify(fd, mask)
        else:
            self._epoll.register(fd, mask)
        self._masks[fd] = mask


def _wanted(watched: Watched) -> int:
    reading = READ if watched.readable() else 0
    return reading | (select.EPOLLOUT if watched.writable() and not watched.accepting else 0)
