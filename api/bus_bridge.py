"""The way from the threads that serve requests to the loop thread that owns the bus, and back.

ZeroMQ sockets belong to one thread. A request thread leaves what it wants said in a queue and writes a byte into a
socket that the loop watches; the loop says it, and puts the answer into a future.
"""

from __future__ import annotations

import logging
import select
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Protocol, TypeVar

from actors.bus.events import Publisher
from actors.bus.loop import Loop
from actors.bus.mailbox import Mailbox
from actors.bus.messages.common import Failed, Unreachable
from api.errors import PeerUnavailable

log = logging.getLogger(__name__)

R = TypeVar("R")

GRACE = 1.0
"""Seconds beyond the deadline of a question before the asking thread gives up on the loop itself."""


class Bridge(Protocol):
    """What the API needs of the bus. Both may be called from any thread but the loop's own."""

    def ask(self, to: str, message: Any, timeout: float = 5.0) -> Any:
        """The answer of the actor `to`, or `Unreachable`. Never raises for what happens on the bus."""
        ...

    def publish(self, topic: str, message: Any) -> None:
        """Say a fact on the events plane, some time soon."""
        ...


def reason_of(reply: Any) -> str:
    """The cause that a reply states which is not the one that was asked for, for the log."""
    if isinstance(reply, Unreachable):
        return f"{reply.actor} cannot be reached: {reply.reason}"
    return reply.error if isinstance(reply, Failed) else f"unexpected reply {type(reply).__name__}"


def request(bridge: Bridge, to: str, message: Any, *kinds: type[R], timeout: float = 5.0) -> R:
    """The reply of the actor `to`, one of `kinds`. Raises `PeerUnavailable` when there is none or another one."""
    reply = bridge.ask(to, message, timeout)
    if isinstance(reply, kinds):
        return reply
    raise PeerUnavailable(to, reason_of(reply))


class LoopBridge:
    """The `Bridge` of a running actor."""

    def __init__(self, loop: Loop, mailbox: Mailbox, events: Publisher) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._events = events
        self._calls: deque[Callable[[], None]] = deque()
        self._waiting: set[Future[Any]] = set()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        loop.watch(self._wake_reader.fileno(), select.EPOLLIN, self._on_wake)

    def ask(self, to: str, message: Any, timeout: float = 5.0) -> Any:
        """See `Bridge.ask`."""
        future: Future[Any] = Future()
        self.call(lambda: self._ask(to, message, timeout, future))
        try:
            return future.result(timeout + GRACE)
        except FutureTimeout:
            return Unreachable(to, "the bus does not answer")

    def publish(self, topic: str, message: Any) -> None:
        """See `Bridge.publish`."""
        self.call(lambda: self._events.publish(topic, message))

    def call(self, function: Callable[[], None]) -> None:
        """Have the loop thread call `function`."""
        self._calls.append(function)
        try:
            self._wake_writer.send(b"!")
        except BlockingIOError:
            return  # so many bytes wait already that the loop will surely wake
        except OSError as error:
            log.warning("the bus is closed: %s", error)

    def close(self) -> None:
        """Loop thread, at its end: whoever still waits hears `Unreachable`."""
        self._loop.unwatch(self._wake_reader.fileno())
        for future in tuple(self._waiting):
            _resolve(future, Unreachable("", "the API is ending"))
        self._wake_reader.close()
        self._wake_writer.close()

    def _on_wake(self, _mask: int) -> None:
        try:
            self._wake_reader.recv(4096)
        except BlockingIOError:
            return  # an earlier turn has read the byte
        while self._calls:
            self._calls.popleft()()

    def _ask(self, to: str, message: Any, timeout: float, future: Future[Any]) -> None:
        self._waiting.add(future)

        def answered(reply: Any) -> None:
            self._waiting.discard(future)
            _resolve(future, reply)

        self._mailbox.ask(to, message, answered, timeout)


def _resolve(future: Future[Any], reply: Any) -> None:
    if not future.done():
        future.set_result(reply)
