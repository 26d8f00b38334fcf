"""The mailbox: a star of DEALERs around the supervisor's ROUTER, every actor known by its name.

An actor sends `[to, envelope]` and receives `[from, envelope]`. The router (`MailboxRouter`) passes on what is not for
the supervisor itself. ROUTER_MANDATORY makes a send fail when a receiver isn't there or its queue is full, and then a
request gets `Unreachable` at once instead of silence.

Every process of an actor has an address of its own, `name/instance`, and the name alone leads to the current one
(`MailboxRouter.set_current_instance`). So two instances of an actor may live side by side, neither replaces the other's
connection, and a reply reaches the very process that asked: never its successor, which may be waiting for another reply
under the same number. (Were the name itself the routing id, ROUTER_HANDOVER would give it to the newcomer and the older
process would reconnect and get it back, again and again.) ROUTER_HANDOVER remains for the connection that a process
makes anew.

`tell` sends without a reply. `ask` doesn't block: it calls a function exactly once, with the reply, or with
`Unreachable` when the deadline has passed.

Requests to actors that are starting wait in the router until the actor is ready. Between the moment when a process is
made and its hello no process has the actor's name. A request that comes then would be refused, though the actor will be
ready within some milliseconds; so it waits, for a bounded time.
"""

from __future__ import annotations

import itertools
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import zmq

from actors.bus.codec import Envelope, EnvelopeRole, ProtocolError, decode, encode, kind_and_role
from actors.bus.loop import Loop, Timer, bind, new_socket
from actors.bus.messages.common import SUPERVISOR, Failed, Unreachable
from actors.bus.permissions import may_send
from actors.log_lines import ThrottledLog
from config.files.paths import RunDir

WAIT_MAX = 2.5
"""Seconds that a request waits: less than its sender does, as a rule."""
WAITING_MAX = 100
"""Requests that wait for one actor; those beyond it are refused."""

STARTING = "it is starting"
ASLEEP = "its proxy sleeps"
"""Why a request is not passed on: the forwarding actor of a proxy that sleeps has no process."""


class _Waiting:
    __slots__ = ("refuse", "send", "timer")

    def __init__(self, send: Callable[[], None], refuse: Callable[[], None], timer: Timer) -> None:
        self.send = send
        self.refuse = refuse
        self.timer = timer


class StartupQueue:
    """See the module. Names are as on the wire."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._expected: dict[bytes, list[_Waiting]] = {}

    def expect(self, name: bytes) -> None:
        """An actor of this name is starting."""
        self._expected.setdefault(name, [])

    def add(self, name: bytes, send: Callable[[], None], refuse: Callable[[], None]) -> bool:
        """Call `send` when the actor is ready, else `refuse`. False when it is not expected, or its queue is full."""
        waiting = self._expected.get(name)
        if waiting is None or len(waiting) >= WAITING_MAX:
            return False

        def give_up() -> None:
            waiting.remove(entry)
            refuse()

        entry = _Waiting(send, refuse, self._loop.call_later(WAIT_MAX, give_up))
        waiting.append(entry)
        return True

    def arrived(self, name: bytes) -> None:
        """The actor is ready: send what has waited for it."""
        for each in self._end(name):
            each.send()

    def gone(self, name: bytes) -> None:
        """No actor of this name is starting any more: refuse what has waited for it."""
        for each in self._end(name):
            each.refuse()

    def _end(self, name: bytes) -> list[_Waiting]:
        waiting = self._expected.pop(name, [])
        for each in waiting:
            each.timer.cancel()
        return waiting


log = logging.getLogger(__name__)

ASK_TIMEOUT = 5.0
"""Seconds that a reply may take by default."""

REFUSAL_PERIOD = 10.0
"""Seconds within which one refused message is logged; the others are counted."""

NOT_ON_THE_BUS = "it is not on the bus"
"""The reason of `Unreachable` for an address that no process has."""

OnReply = Callable[[Any], None]
Reply = Callable[[Any], None]
"""Sends the reply to one request, in the call of the `Receiver` or later."""

Receiver = Callable[[str, Any, Reply], None]
"""Called as `(sender, message, reply)`. After a `tell`, `reply` does nothing."""


def address_of(name: str, instance: int) -> str:
    """The address of one process of an actor."""
    return f"{name}/{instance}"


def name_in(address: str) -> str:
    """The actor's name in the address of one of its processes, or in itself."""
    return address.partition("/")[0]


class Endpoint(ABC):
    """What actor and supervisor share: correlation, deadlines, replies. `transmit(to, frame)` is the wire."""

    def __init__(self, loop: Loop, receiver: Receiver) -> None:
        self._loop = loop
        self._receiver = receiver
        self._numbers = itertools.count(1)
        self._requests: dict[int, tuple[str, OnReply, Timer]] = {}

    @abstractmethod
    def transmit(self, to: str, frame: bytes) -> str | None:
        """Send a frame; None when it is on its way, else the reason why it is not."""

    def tell(self, to: str, message: Any) -> bool:
        """Send without a reply. False when it certainly was not sent."""
        return self.transmit(to, encode(Envelope(message))) is None

    def ask(self, to: str, message: Any, on_reply: OnReply, timeout: float = ASK_TIMEOUT) -> None:
        """Send and have `on_reply` called once, with the reply or with `Unreachable`, never in this very call."""
        number = next(self._numbers)
        late = self._loop.call_later(timeout, lambda: self._resolve(number, Unreachable(to, "no reply in time")))
        self._requests[number] = (name_in(to), on_reply, late)
        failure = self.transmit(to, encode(Envelope(message, number, EnvelopeRole.ASK)))
        if failure is not None:
            self._loop.call_soon(lambda: self._resolve(number, Unreachable(to, failure)))

    def on_frame(self, sender: str, frame: bytes) -> None:
        """Handle one frame from the wire."""
        try:
            envelope = decode(frame)
        except ProtocolError as error:
            log.error("message from %s refused: %s", sender, error)
            return
        if envelope.role is EnvelopeRole.REPLY:
            self._replied(sender, envelope)
        else:
            self._receiver(name_in(sender), envelope.message, self._reply_to(sender, envelope))

    def _reply_to(self, sender: str, request: Envelope) -> Reply:
        if request.role is not EnvelopeRole.ASK:
            return _no_reply

        def reply(message: Any) -> None:
            self.transmit(sender, encode(Envelope(message, request.correlation, EnvelopeRole.REPLY)))

        return reply

    def _replied(self, sender: str, envelope: Envelope) -> None:
        request = self._requests.get(envelope.correlation)
        if request is None or request[0] == name_in(sender):
            self._resolve(envelope.correlation, envelope.message)
        else:
            log.error("dropped a reply of %s to a request to %s", sender, request[0])

    def _resolve(self, number: int, message: Any) -> None:
        request = self._requests.pop(number, None)
        if request is None:
            return  # the reply came after its deadline, when `on_reply` had got `Unreachable`
        _to, on_reply, late = request
        late.cancel()
        on_reply(message)


class Mailbox(Endpoint):
    """An actor's end of the star. `own` is this process's address on it (`address_of`)."""

    def __init__(self, loop: Loop, context: zmq.Context[Any], address: str, own: str, receiver: Receiver) -> None:
        super().__init__(loop, receiver)
        self._socket = new_socket(context, zmq.DEALER)
        self._socket.setsockopt(zmq.ROUTING_ID, own.encode())
        self._socket.connect(address)
        loop.attach(self._socket, self._on_frames)

    def transmit(self, to: str, frame: bytes) -> str | None:
        """Queue a frame for the router."""
        try:
            self._loop.send(self._socket, [_addressed(to.encode(), frame)])
        except zmq.Again:
            return "the mailbox is full"
        return None

    def close(self, linger: float = 0.2) -> None:
        """Leave the star; what is queued gets `linger` seconds."""
        self._loop.detach(self._socket)
        self._socket.close(linger=int(linger * 1000))

    def _on_frames(self, frames: list[bytes]) -> None:
        opened = _opened(frames)
        if opened is not None:
            sender, frame = opened
            self.on_frame(sender.decode(errors="replace"), frame)


class MailboxRouter(Endpoint):
    """The supervisor's end: the middle of the star. It passes on what is for others and handles what is for itself."""

    def __init__(self, loop: Loop, context: zmq.Context[Any], address: str, receiver: Receiver) -> None:
        super().__init__(loop, receiver)
        self._current: dict[bytes, bytes] = {}
        self.is_asleep: Callable[[str], bool] = lambda _name: False
        """Whether the actor of this name has no process since its proxy sleeps."""
        self._starting = StartupQueue(loop)
        self._refusals = ThrottledLog(log, "a message was refused", REFUSAL_PERIOD)
        self._socket = new_socket(context, zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        bind(self._socket, address)
        loop.attach(self._socket, self._on_frames)

    def set_current_instance(self, name: str, instance: int) -> None:
        """From now on messages for `name` go to this process of it, first of all the requests that have waited."""
        self._current[name.encode()] = address_of(name, instance).encode()
        self._starting.arrived(name.encode())

    def expect(self, name: str) -> None:
        """A process of `name` is starting: requests for it wait until it is current (`actors.bus.mailbox`)."""
        if name.encode() not in self._current:
            self._starting.expect(name.encode())

    def clear_current_instance(self, name: str) -> None:
        """`name` has no process at present: it is unreachable."""
        self._current.pop(name.encode(), None)
        self._starting.gone(name.encode())

    def transmit(self, to: str, frame: bytes) -> str | None:
        """Send a frame to an actor, or to one process of it."""
        return self._pass(SUPERVISOR.encode(), to.encode(), frame)

    def close(self) -> None:
        """Close the star."""
        self._loop.detach(self._socket)
        self._socket.close(linger=0)

    def _pass(self, sender: bytes, to: bytes, frame: bytes) -> str | None:
        try:
            self._loop.send(self._socket, [self._current.get(to, to), _addressed(sender, frame)])
        except zmq.Again:
            return "its queue is full"
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            return NOT_ON_THE_BUS
        return None

    def _on_frames(self, frames: list[bytes]) -> None:
        sender, *rest = frames
        opened = _opened(rest)
        if opened is None:
            return
        to, frame = opened
        head = kind_and_role(frame)
        if (
            head is not None
            and head[1] is not EnvelopeRole.REPLY
            and not may_send(sender.decode(errors="replace"), head[0])
        ):
            self._refused(sender, to, head[0], frame)
            return
        if to == SUPERVISOR.encode():
            self.on_frame(sender.decode(errors="replace"), frame)
            return
        failure = self._pass(sender, to, frame)
        if failure is not None:
            self._not_passed(sender, to, frame, failure)

    def _refused(self, sender: bytes, to: bytes, kind: str, frame: bytes) -> None:
        """This actor may not send this; a request gets `Failed`."""
        why = f"{sender.decode(errors='replace')} may not send {kind}"
        self._refusals.error(f"{why} to {to.decode(errors='replace')}", key="")
        try:
            envelope = decode(frame)
        except ProtocolError:
            return
        if envelope.role is EnvelopeRole.ASK:
            self._pass(to, sender, encode(Envelope(Failed(why), envelope.correlation, EnvelopeRole.REPLY)))

    def _not_passed(self, sender: bytes, to: bytes, frame: bytes, failure: str) -> None:
        """A request waits while the actor starts, and else gets `Unreachable`; all else is dropped."""
        try:
            envelope = decode(frame)
        except ProtocolError as error:
            log.error("message from %r refused: %s", sender, error)
            return
        if envelope.role is not EnvelopeRole.ASK:
            return

        def refuse(reason: str) -> None:
            unreachable = Unreachable(to.decode(errors="replace"), reason)
            self._pass(to, sender, encode(Envelope(unreachable, envelope.correlation, EnvelopeRole.REPLY)))

        def send() -> None:
            failure = self._pass(sender, to, frame)
            if failure is not None:
                refuse(failure)

        if to in self._current or not self._starting.add(to, send, lambda: refuse(STARTING)):
            refuse(ASLEEP if self.is_asleep(name_in(to.decode(errors="replace"))) else failure)


def _addressed(other: bytes, frame: bytes) -> bytes:
    """One frame with the receiver's or the sender's address and the message itself.

    It is one frame and not two, since libzmq (4.3.5, session_base.cpp) ends the process when a socket is closed in the
    middle of a message of several frames for a receiver whose queue is full.
    """
    return bytes((len(other),)) + other + frame


def _opened(parts: list[bytes]) -> tuple[bytes, bytes] | None:
    """Address and message of a frame that `_addressed` made; anything else is logged, and None."""
    if len(parts) != 1 or not parts[0] or len(parts[0]) <= parts[0][0]:
        log.error("dropped a malformed mailbox message with %d frames", len(parts))
        return None
    part, end = parts[0], parts[0][0] + 1
    return part[1:end], part[end:]


def _no_reply(_message: Any) -> None:
    """A `tell` has no reply."""


def refuse(_sender: str, message: Any, reply: Reply) -> None:
    """A receiver for messages that an actor doesn't handle: a request gets `Failed`."""
    reply(Failed(f"{type(message).__name__} is not understood here"))


class NotRunningError(Exception):
    """Nothing runs in this run directory; the text names it."""


class BusClient:
    """A connection to the bus of the product that runs in `run`. Raises `NotRunningError`."""

    def __init__(self, run: RunDir) -> None:
        if not os.path.exists(run.path / "mailbox"):  # False also without permission
            raise NotRunningError(f"nothing runs in {run.path}; name its run directory with --run-dir")
        self._loop = Loop()
        self._context: zmq.Context[Any] = zmq.Context()
        own = address_of("command", os.getpid())
        self._mailbox = Mailbox(self._loop, self._context, run.mailbox, own, refuse)

    def ask(self, message: Any, to: str = SUPERVISOR, timeout: float = ASK_TIMEOUT) -> Any:
        """The reply; `Unreachable` when none came in `timeout` seconds."""
        replies: list[Any] = []

        def received(reply: Any) -> None:
            replies.append(reply)
            self._loop.stop()

        self._mailbox.ask(to, message, received, timeout)
        self._loop.run()
        return replies[0]

    def close(self) -> None:
        """Leave the bus."""
        self._mailbox.close()
        self._context.term()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
