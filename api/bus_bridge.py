"""The bridge between the threads that serve requests and the loop thread that owns the bus.

ZeroMQ sockets belong to one thread. A request thread queues a call and writes a byte into a socket that the loop
watches; the loop sends the message, and puts the reply into a future.
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Protocol, TypeVar

from actors.bus.events import Publisher
from actors.bus.loop import Loop
from actors.bus.mailbox import ASLEEP, Mailbox
from actors.bus.messages.common import Failed, Unreachable
from api.errors import PeerUnavailable

log = logging.getLogger(__name__)

R = TypeVar("R")

GRACE = 1.0
"""Seconds beyond the timeout of a request after which the requesting thread stops waiting for the loop."""


class Bridge(Protocol):
    """What the API needs of the bus. All may be called from any thread except the loop's."""

    def ask(self, to: str, message: Any, timeout: float = 5.0) -> Any:
        """The reply of the actor `to`, or `Unreachable`. Raises nothing for what happens on the bus."""
        ...

    def ask_all(self, requests: Mapping[str, Any], timeout: float = 5.0) -> dict[str, Any]:
        """By actor, what `ask` would return for its request. All are asked at once, so it takes `timeout` at most."""
        ...

    def publish(self, topic: str, message: Any) -> None:
        """Publish an event on the events plane soon."""
        ...


def reason_of(reply: Any) -> str:
    """The cause stated by a reply other than the expected one, for the log."""
    if isinstance(reply, Unreachable):
        return f"{reply.actor} cannot be reached: {reply.reason}"
    return reply.error if isinstance(reply, Failed) else f"unexpected reply {type(reply).__name__}"


def is_asleep(reply: object) -> bool:
    """Whether this reply of a proxy's process says that there is none, since the proxy sleeps."""
    return isinstance(reply, Unreachable) and reply.reason == ASLEEP


def request(bridge: Bridge, to: str, message: Any, *kinds: type[R], timeout: float = 5.0) -> R:
    """The reply of the actor `to`, one of `kinds`. Raises `PeerUnavailable` when there is none or another one."""
    return checked(to, bridge.ask(to, message, timeout), *kinds)


def checked(to: str, reply: Any, *kinds: type[R]) -> R:
    """The reply of the actor `to`, one of `kinds`. Raises `PeerUnavailable` when it is another one."""
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
        return _reply_in(future, to, timeout + GRACE)

    def ask_all(self, requests: Mapping[str, Any], timeout: float = 5.0) -> dict[str, Any]:
        """See `Bridge.ask_all`."""
        futures: dict[str, Future[Any]] = {to: Future() for to in requests}

        def send() -> None:
            for to, message in requests.items():
                self._ask(to, message, timeout, futures[to])

        self.call(send)
        ends = time.monotonic() + timeout + GRACE
        return {to: _reply_in(each, to, ends - time.monotonic()) for to, each in futures.items()}

    def publish(self, topic: str, message: Any) -> None:
        """See `Bridge.publish`."""
        self.call(lambda: self._events.publish(topic, message))

    def call(self, function: Callable[[], None]) -> None:
        """Have the loop thread call `function`."""
        self._calls.append(function)
        try:
            self._wake_writer.send(b"!")
        except BlockingIOError:
            return  # the socket is full of bytes, so the loop will wake up
        except OSError as error:
            log.warning("the bus is closed: %s", error)

    def close(self) -> None:
        """At the end of the loop thread: requests that still wait get `Unreachable`."""
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

        def on_reply(reply: Any) -> None:
            self._waiting.discard(future)
            _resolve(future, reply)

        self._mailbox.ask(to, message, on_reply, timeout)


def _reply_in(future: Future[Any], to: str, seconds: float) -> Any:
    """The reply, or `Unreachable` when the loop thread gives none in so many seconds."""
    try:
        return future.result(max(0.0, seconds))
    except FutureTimeout:
        return Unreachable(to, "the loop does not respond")


def _resolve(future: Future[Any], reply: Any) -> None:
    if not future.done():
        future.set_result(reply)
