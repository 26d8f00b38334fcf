"""One client connection on real sockets: carries out what its session commands, and tells it what happens.

Back-pressure is one rule in both directions: nothing is read from one side while bytes for the other side wait here.
So at most one read's worth is ever held, whatever the speeds. Sockets are edge-triggered, so "there may be more to
read" is remembered (`client_readable`, `OriginConnection.readable`) until a read says that there isn't.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from actors.counters import BYTES_IN, BYTES_OUT
from actors.forwarding.connections.bind_listener import Inbound
from actors.forwarding.connections.body_relay import flow_down, flow_up
from actors.forwarding.connections.command_handlers import DO, leave_origin
from actors.forwarding.connections.request_context import RequestContext
from actors.forwarding.connections.table import Live
from actors.forwarding.context import Serving
from actors.forwarding.isolation import isolated
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.net.dialer import ENDED, READABLE, Dial
from actors.forwarding.net.lingering_close import linger
from actors.forwarding.net.splice import AnyFlow
from actors.forwarding.net.timer_wheel import NEVER, QUANTUM
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import Command, LeaveOrigin
from actors.net.send_buffer import push
from actors.net.transport import Transport, reset_on_close, unsent

if TYPE_CHECKING:
    from actors.forwarding.connections.bound_origin import Bound
    from actors.forwarding.connections.deferred_handlers import Check
    from actors.forwarding.limits.meter import Meter
    from actors.forwarding.protocols.session_config import Policy
    from actors.forwarding.upstreams.route import Route
    from actors.net.proxy_protocol import Ends

READ_SIZE = 64 * 1024
ROUNDS = 16
"""Reads from one socket before the others get their turn."""


class Client:
    """A client connection, whatever its session speaks.

    What is under way on it is told by its public parts, which `orders`, `questions` and `bulk` change:

    - `sock` is the client's side with `out`, the bytes that it doesn't take yet, and `client_readable`, `client_ended`;
    - `origin` is the other side, if any, with `origin_ended` and `origin_broke`;
    - `dial` is the way to it that is being looked for, `relay` the socket for datagrams that it may become;
    - `bound` has the origin connection that belongs to this client alone, where there ever was one;
    - `request` is what belongs to one request alone;
    - `up` and `down` are the bodies that are moved past the session;
    - `closing` means that it ends when all is sent, `over` that it is no more, or is somebody else's.
    """

    __slots__ = (
        "_short_is_all",
        "_unsent",
        "bound",
        "bytes_in",
        "bytes_out",
        "check",
        "client_ended",
        "client_ip",
        "client_readable",
        "closing",
        "counts",
        "dial",
        "down",
        "ends",
        "judge",
        "last",
        "loop",
        "meter",
        "number",
        "origin",
        "origin_broke",
        "origin_ended",
        "out",
        "over",
        "relay",
        "reported",
        "request",
        "scheduled_for",
        "serving",
        "session",
        "sock",
        "up",
    )

    def __init__(self, serving: Serving, sock: Transport, client_ip: str) -> None:
        self.serving = serving
        self.loop = serving.loop
        self.counts = serving.count.values
        self.sock = sock
        self.client_ip = client_ip
        self.session = serving.new_session()
        self._short_is_all = isinstance(sock, socket.socket)  # TLS gives its bytes record by record
        self.client_readable = False
        self.client_ended = False
        self.out = bytearray()
        self.closing = False
        self.over = False
        self.check: Check | None = None
        self._unsent = 0
        self.origin: OriginConnection | None = None
        self.origin_ended = False
        self.origin_broke = False
        self.dial: Dial | Inbound | Route | None = None
        self.bound: Bound | None = None
        self.relay: socket.socket | None = None
        self.up: AnyFlow | None = None
        self.down: AnyFlow | None = None
        self.number = serving.new_number()
        self.meter = serving.limits.new_meter()
        self.bytes_in = self.bytes_out = 0
        self.request = RequestContext()
        """What belongs to the request that is under way, or to the next one."""
        self.last = self.request
        """The one before, to be shown."""
        self.ends: Ends | None = None
        """The client's address and the one that it connected to, where a balancer has told them."""
        self.judge = serving.judge
        """By whom it was let in, or let go on."""
        self.reported = ""
        """What rules in report mode would have refused about this client."""
        self.scheduled_for = NEVER
        serving.deadlines.schedule(self)

    @property
    def fileno(self) -> int:
        """The descriptor of the client's connection."""
        return self.sock.fileno()

    @property
    def waits(self) -> bool:
        """See `asker.Requester`."""
        return not (self.over or self.client_ended)

    # --- what the kernel says ---

    def on_client(self, mask: int) -> None:
        """The client's socket is ready for something."""
        try:
            if mask & READABLE:
                self.client_readable = True
                if mask & ENDED:
                    self.client_ended = True
            if self.out or self.origin is not None:
                self._go_on()
            elif self.client_readable:
                self._read_client()  # the common case: nothing is under way, a request comes
        except Exception as error:  # noqa: BLE001 - as `isolated`, without a call more
            self.crashed(error)

    def on_origin(self, mask: int) -> None:
        """The origin's socket is ready for something."""
        try:
            origin = self.origin
            if origin is None:
                return
            if mask & READABLE:
                origin.readable = True
                if mask & ENDED:
                    self.origin_ended = True
            self._go_on()
        except Exception as error:  # noqa: BLE001 - as above
            self.crashed(error)

    @isolated
    def go_on(self) -> None:
        """Do what can be done: send what waits, move what flows, read what is wanted."""
        self._go_on()

    def _go_on(self) -> None:
        if self.over:
            return
        if self.out:
            self.send_client(b"")
        origin = self.origin
        if origin is not None:
            if origin.out:
                self.send_origin(b"")
            if origin.readable and not self.out and self.down is None:
                self._read_origin()
            if self.down is not None:
                flow_down(self)
        if self.client_readable and not self.over:
            self._read_client()
        if self.up is not None:
            flow_up(self)

    # --- reading ---

    def _read_client(self) -> None:
        session = self.session
        for _ in range(ROUNDS):
            if self.over or self.up is not None or not session.reads_client or self.origin_waits():
                return
            meter = self.meter
            size = READ_SIZE if meter is None else min(READ_SIZE, meter.inward.share())
            if meter is not None and not size:
                meter.inward.wait(self.go_on)
                return
            try:
                data = self.sock.recv(size)
            except BlockingIOError:
                self.client_readable = False
                return
            except OSError as error:
                if not (self._short_is_all or self.bytes_in):
                    self._handshake_failed(error)
                self.perform(session.client_disconnected(self.loop.now))
                return
            self.counts[BYTES_IN] += len(data)
            self.bytes_in += len(data)
            if meter is not None:
                meter.inward.spend(len(data))
            if not data or (len(data) < size and self._short_is_all and not self.client_ended):
                self.client_readable = False
            self.perform(session.receive_from_client(data, self.loop.now))
            if not self.client_readable:
                return
            if self.loop.overdue():  # small chunks are a thousand times the work of large ones
                break
        self.loop.call_soon(self.go_on)

    def _handshake_failed(self, error: OSError) -> None:
        from actors.forwarding.net.tls_failures import handshake_failure  # only https proxies pay for it

        failure = handshake_failure(error, getattr(self.sock, "heard", False))
        if failure is not None:
            self.serving.handshake_failed(self, failure)

    def origin_waits(self) -> bool:
        """Are there bytes that the origin does not take yet?"""
        return self.origin is not None and bool(self.origin.out)

    def _read_origin(self) -> None:
        session = self.session
        for _ in range(ROUNDS):
            origin = self.origin
            if origin is None or self.out or self.down is not None or not session.reads_origin:
                return
            meter = self.meter
            size = READ_SIZE if meter is None else min(READ_SIZE, meter.outward.share())
            if meter is not None and not size:
                meter.outward.wait(self.go_on)
                return
            try:
                data = origin.sock.recv(size)
            except BlockingIOError:
                origin.readable = False
                return
            except OSError:
                self.perform(session.origin_disconnected(self.loop.now))
                return
            if not data or (len(data) < size and origin.plain and not self.origin_ended):
                origin.readable = False
            broke = not data and self.origin_broke  # the error was told to a send already: this is no good end
            now = self.loop.now
            self.perform(session.origin_disconnected(now) if broke else session.receive_from_origin(data, now))
            if self.origin is not origin or not origin.readable:
                return
            if self.loop.overdue():
                break
        self.loop.call_soon(self.go_on)

    # --- sending ---

    def send_client(self, data: bytes) -> None:
        """Send, behind what waits already; keep what the kernel doesn't take."""
        try:
            sent = push(self.sock, self.out, data)
        except OSError:
            self._client_broke()
            return
        self.counts[BYTES_OUT] += sent
        self.bytes_out += sent
        if sent:
            self.session.note_progress(self.loop.now)
            if self.meter is not None:
                self.meter.outward.spend(sent)
        if self.closing and not self.out:
            self._finish_closing()

    def _client_broke(self) -> None:
        """There is no way to the client any more."""
        if self.session.closed:
            self.close(abort=True)
        else:
            self.loop.call_soon(self._on_client_disconnected)

    @isolated
    def _on_client_disconnected(self) -> None:
        if not self.over:
            self.perform(self.session.client_disconnected(self.loop.now))

    def send_origin(self, data: bytes) -> None:
        """As `send_client`, to the other side."""
        origin = self.origin
        assert origin is not None
        try:
            push(origin.sock, origin.out, data)
        except OSError:
            self.origin_broken()

    def origin_broken(self) -> None:
        """The origin takes nothing more. It may have answered before it closed: that is read before it is given up."""
        assert self.origin is not None
        self.origin.readable = self.origin_ended = self.origin_broke = True
        self.loop.call_soon(self.go_on)

    # --- commands ---

    def perform(self, commands: list[Command]) -> None:
        """Carry out what the session wants, in order."""
        for command in commands:
            more = DO[type(command)](self, command)
            if more:
                commands.extend(more)  # an answer given at once; the question is always the last of its list
        if self.session.deadline + QUANTUM < self.scheduled_for and not self.over:
            self.serving.deadlines.schedule(self)

    # --- ends ---

    @property
    def deadline(self) -> float:
        """When it expires."""
        return float("inf") if self.over else self.session.deadline

    @isolated
    def expire(self) -> None:
        """The session's deadline has passed. What the kernel still delivers counts as movement."""
        waiting = unsent(self.sock.fileno())
        if waiting and waiting != self._unsent:
            self._unsent = waiting
            self.session.note_progress(self.loop.now)
            return
        if self.meter is not None and self.meter.waiting and not self.session.idle:
            self.session.note_progress(self.loop.now)  # it stands still because we hold it
            if self.session.deadline > self.loop.now:
                return
        if self.closing:
            self.close(abort=True)
            return
        now = self.loop.now
        dial = self.dial
        self._cancel_dial()
        if dial is not None and dial.resolving and self.session.opening:
            self.perform(self.session.failed(failures.dns_timed_out("the name did not resolve in time"), now))
        else:
            self.perform(self.session.timed_out(now))

    def measure(self, meter: Meter) -> None:
        """See `connections.Open`. A request that was let through already is not judged a second time."""
        self.meter = meter
        meter.admitted = self.origin is not None or self.dial is not None
        if self.up is not None:
            self.up.throttle = meter.inward
        if self.down is not None:
            self.down.throttle = meter.outward

    def live(self) -> Live:
        """What it is doing now; its target is that of the last request."""
        request = self.last if self.request.target is None else self.request
        target, parent = request.target, request.parent
        where = "" if target is None else f"{target.host}:{target.port}"
        if target is not None and ":" in target.host:
            where = f"[{target.host}]:{target.port}"
        through = "" if parent is None else parent.name
        return Live(self.client_ip, request.user, where, self._state(), self.bytes_in, self.bytes_out, through)

    def adopt(self, policy: Policy) -> None:
        """See `connections.Open`."""
        self.session.adopt(policy)

    def request_over(self) -> None:
        """It has been reported: nothing of it is taken for the next one."""
        self.last, self.request = self.request, RequestContext()

    def _state(self) -> str:
        session = self.session
        if session.closed:
            return "closing"
        if session.authorizing:
            return "authorizing"
        if session.opening:
            return "connecting"
        return "idle" if session.idle else "active"

    def end(self, reason: str) -> None:
        """End it from outside; what is under way is reported with `reason`."""
        if not self.over:
            self.perform(self.session.abort(reason, self.loop.now))

    def crashed(self, error: Exception) -> None:
        """See `isolation`."""
        self.serving.crashed(self, error)

    def drop(self) -> None:
        """See `connections.Open`."""
        self.over = True
        origin = self.origin
        for sock in (self.sock, self.relay, None if origin is None else origin.sock):
            if sock is not None:
                self.loop.forget(sock.fileno())
                sock.close()

    @isolated
    def retire(self, patient: bool) -> None:
        """No further request on this connection; what is under way is finished.

        With `patient`, one that has not been served at all may still send its request.
        """
        self.session.disable_keep_alive()
        self.client_readable = True
        self.go_on()  # a request that has come already is the last one
        if patient and not self.session.has_request:
            return
        if self.session.idle and not self.closing and not self.over:
            self.close_when_sent()

    def _cancel_dial(self) -> None:
        dial, self.dial = self.dial, None
        if dial is not None:
            dial.cancel()

    def close_when_sent(self) -> None:
        """Close it once the client has been sent all that waits."""
        self.closing = True
        if not self.out:
            self._finish_closing()

    def _finish_closing(self) -> None:
        """All is sent. What the client still sends is read for a moment, so that it can read our last words."""
        if self.over:
            return
        if self.client_ended:
            self.close(abort=False)
        else:
            self._let_go()
            linger(self.serving, self.sock, self.client_ip)

    def close(self, abort: bool) -> None:
        """Close it now; with `abort` the client sees a reset."""
        if self.over:
            return
        self._let_go()
        if abort:
            reset_on_close(self.sock)
        self.loop.forget(self.sock.fileno())
        self.sock.close()

    def _let_go(self) -> None:
        """Everything but the client's socket is given back."""
        self.over = True
        self._cancel_dial()
        if self.check is not None:
            self.check.cancel()
        if self.relay is not None:
            self.relay.close()
        leave_origin(self, LeaveOrigin(reusable=False))
        if self.bound is not None:
            self.bound.end()
        self.serving.ended(self)

    def __repr__(self) -> str:
        return f"<Client {self.client_ip} {self.session!r}, {len(self.out)} bytes to send>"
