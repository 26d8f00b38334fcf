"""The loop of the HTTP server, on sockets of its own: what it takes for an event, and of whom."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterator

import pytest

from api.server.event_loop import EventLoop

LONG_MS = 30_000


class Watched:
    """Counts its events; `on_read` is called when there is something to read."""

    accepting = False

    def __init__(self, loop: EventLoop, sock: socket.socket) -> None:
        self.events = 0
        self.on_read: Callable[[], None] = lambda: None
        self.socket = sock
        self._fileno: int | None = sock.fileno()
        self._loop = loop
        loop[sock.fileno()] = self

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def handle_read_event(self) -> None:
        self.events += 1
        self.on_read()

    def handle_expt_event(self) -> None:
        self.events += 1

    def handle_close(self) -> None:
        self.events += 1
        self.close()

    def close(self) -> None:
        if self._fileno is not None:
            del self._loop[self._fileno]
            self._fileno = None
            self.socket.close()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = EventLoop()
    yield made
    for each in tuple(made.values()):
        each.close()
    made.clear()


def test_urgent_data_alone_are_no_event(loop: EventLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        watched = Watched(loop, listener.accept()[0])
        client.send(b"!", socket.MSG_OOB)
        arrived = select.poll()
        arrived.register(watched.socket, select.POLLPRI)
        assert arrived.poll(LONG_MS)
        loop.turn(0.0)
        assert watched.events == 0


def test_an_event_is_not_for_another_who_has_its_descriptor_by_now(loop: EventLoop) -> None:
    """The first of two that are closed in the same moment closes the other one too, and accepts a third."""
    ours, theirs = zip(*(socket.socketpair() for _ in range(3)), strict=True)
    both = [Watched(loop, sock) for sock in ours[:2]]
    third: list[Watched] = []

    def replace(other: Watched) -> None:
        fd = other.socket.fileno()
        other.close()
        if not third:
            os.dup2(ours[2].fileno(), fd)
            third.append(Watched(loop, socket.socket(fileno=fd)))

    for one, other in (both, reversed(both)):
        one.on_read = lambda other=other: replace(other)  # type: ignore[misc]
    for each in theirs[:2]:
        each.close()
    loop.turn(0.0)
    assert third[0].events == 0
    for each in (ours[2], theirs[2]):
        each.close()
