"""One client connection on real sockets: it executes what its session commands, and reports to it what happens.

Back-pressure is one rule in both directions: nothing is read from one side while bytes for the other side wait here.
So at most one read's worth is ever buffered, whatever the speeds. Sockets are edge-triggered, so "there may be more to
read" is remembered (`client_readable`, `OriginConnection.readable`) until a read says that there isn't.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from actors.counters import BYTES_IN, BYTES_OUT
from actors.forwarding.connection import ConnectionInfo
from actors.forwarding.connections.body_relay import BodyRelay
from actors.forwarding.connections.bound_origin import BoundOrigin
from actors.forwarding.connections.request_context import RequestContext
from actors.forwarding.context import ForwardingContext, Side
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import Meter
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.net.dialer import ENDED, READABLE
from actors.forwarding.net.timer_wheel import NEVER, QUANTUM
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import Command
from actors.forwarding.protocols.session_config import SessionConfig
from actors.net.proxy_protocol import Ends
from actors.net.send_buffer import push
from actors.net.transport import Transport, reset_on_close, unsent

READ_SIZE = 64 * 1024
ROUNDS = 16
"""Reads from one socket before the others get their turn."""

Handlers = Mapping[type[Any], Callable[["ClientConnection", Any], list[Command] | None]]
"""What executes each kind of command; it returns the commands that follow from an outcome that is known at once."""


class PendingOrigin(Protocol):
    """An origin connection on its way: dialled, awaited, or routed through an upstream."""

    @property
    def resolving(self) -> bool:
        """True while the target's name is being resolved."""

    def cancel(self) -> None:
        """Give it up."""


class PendingAuth(Protocol):
    """A check of credentials that is under way."""

    def cancel(self) -> None:
        """Ignore its result."""


class ClientConnection:
    """A client connection, whatever protocol its session speaks.

    The handlers of its commands read and change its public attributes:

    - `sock` is the client's side with `send_buffer`, the bytes that the kernel doesn't take yet, and `client_readable`,
      `client_ended`;
    - `origin` is the other side, if any, with `origin_ended` and `origin_broke`; `pending_origin` is one on its way;
    - `bound` has the origin connection that belongs to this client alone, where there ever was one;
    - `datagrams` is the socket of the UDP association that it may become;
    - `request` is what belongs to one request alone, `last` that of the request before;
    - `request_relay` and `response_relay` are the bodies that are moved past the session;
    - `closing` means that it closes when all is sent, `closed` that it is closed or has become a tunnel.
    """

    __slots__ = (
        "_handlers",
        "_short_is_all",
        "_unsent",
        "access",
        "bound",
        "bytes_in",
        "bytes_out",
        "client_ended",
        "client_ip",
        "client_readable",
        "closed",
        "closing",
        "context",
        "counts",
        "datagrams",
        "last",
        "loop",
        "meter",
        "number",
        "origin",
        "origin_broke",
        "origin_ended",
        "pending_auth",
        "pending_origin",
        "proxy_addresses",
        "report_only_reason",
        "request",
        "request_relay",
        "response_relay",
        "scheduled_for",
        "send_buffer",
        "session",
        "sock",
    )

    def __init__(self, context: ForwardingContext, sock: Transport, client_ip: str, handlers: Handlers) -> None:
        self.context = context
        self.loop = context.loop
        self.counts = context.stats.values
        self.sock = sock
        self.client_ip = client_ip
        self.session = context.new_session()
        self._handlers = handlers
        self._short_is_all = isinstance(sock, socket.socket)  # TLS gives its bytes record by record
        self.client_readable = False
        self.client_ended = False
        self.send_buffer = bytearray()
        self.closing = False
        self.closed = False
        self.pending_auth: PendingAuth | None = None
        self._unsent = 0
        self.origin: OriginConnection | None = None
        self.origin_ended = False
        self.origin_broke = False
        self.pending_origin: PendingOrigin | None = None
        self.bound: BoundOrigin | None = None
        self.datagrams: socket.socket | None = None
        self.request_relay: BodyRelay | None = None
        self.response_relay: BodyRelay | None = None
        self.number = context.new_number()
        self.meter = context.limits.new_meter()
        self.bytes_in = self.bytes_out = 0
        self.request = self.last = RequestContext()
        self.proxy_addresses: Ends | None = None
        """The client's address and the one that it connected to, from a PROXY protocol header."""
        self.access = context.policy.access
        """The policy that has allowed this client last."""
        self.report_only_reason = ""
        """The reason for which rules in report mode would have refused this client."""
        self.scheduled_for = NEVER
        context.timers.schedule(self)

    @property
    def id(self) -> str:
        """Its id in the log and in lists of connections."""
        return self.context.connection_id(self.number)

    @property
    def fileno(self) -> int:
        """The descriptor of the client's connection."""
        return self.sock.fileno()

    @property
    def waits(self) -> bool:
        """See `Requester`."""
        return not (self.closed or self.client_ended)

    # --- events of the sockets ---

    def on_client(self, mask: int) -> None:
        """The client's socket is ready for something."""
        try:
            if mask & READABLE:
                self.client_readable = True
                if mask & ENDED:
                    self.client_ended = True
            if self.send_buffer or self.origin is not None:
                self._pump()
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
            self._pump()
        except Exception as error:  # noqa: BLE001 - as above
            self.crashed(error)

    @isolated
    def pump(self) -> None:
        """Do what can be done: send what is buffered, move bodies, read what the session wants."""
        self._pump()

    def _pump(self) -> None:
        if self.closed:
            return
        if self.send_buffer:
            self.send_client(b"")
        origin = self.origin
        if origin is not None:
            if origin.out:
                self.send_origin(b"")
            if origin.readable and not self.send_buffer and self.response_relay is None:
                self._read_origin()
            if self.response_relay is not None and not self.send_buffer:
                self.response_relay.pump()
        if self.client_readable and not self.closed:
            self._read_client()
        if self.request_relay is not None and not self.origin_blocked():
            self.request_relay.pump()

    # --- reading ---

    def _read_client(self) -> None:
        session = self.session
        for _ in range(ROUNDS):
            if self.closed or self.request_relay is not None or not session.reads_client or self.origin_blocked():
                return
            meter = self.meter
            size = READ_SIZE if meter is None else min(READ_SIZE, meter.inward.share())
            if meter is not None and not size:
                meter.inward.wait(self.pump)
                return
            try:
                data = self.sock.recv(size)
            except BlockingIOError:
                self.client_readable = False
                return
            except OSError as error:
                if not (self._short_is_all or self.bytes_in):
                    self._handshake_failed(error)
                self.execute(session.client_disconnected(self.loop.now))
                return
            self.counts[BYTES_IN] += len(data)
            self.bytes_in += len(data)
            if meter is not None:
                meter.inward.spend(len(data))
            if not data or (len(data) < size and self._short_is_all and not self.client_ended):
                self.client_readable = False
            self.execute(session.receive_from_client(data, self.loop.now))
            if not self.client_readable:
                return
            if self.loop.overdue():  # small chunks are a thousand times the work of large ones
                break
        self.loop.call_soon(self.pump)

    def _handshake_failed(self, error: OSError) -> None:
        from actors.forwarding.net.tls_failures import handshake_failure  # only https proxies pay for it

        failure = handshake_failure(error, getattr(self.sock, "heard", False))
        if failure is not None:
            self.context.handshake_failed(self, failure)

    def origin_blocked(self) -> bool:
        """Whether bytes wait that the origin does not take yet."""
        return self.origin is not None and bool(self.origin.out)

    def _read_origin(self) -> None:
        session = self.session
        for _ in range(ROUNDS):
            origin = self.origin
            if origin is None or self.send_buffer or self.response_relay is not None or not session.reads_origin:
                return
            meter = self.meter
            size = READ_SIZE if meter is None else min(READ_SIZE, meter.outward.share())
            if meter is not None and not size:
                meter.outward.wait(self.pump)
                return
            try:
                data = origin.sock.recv(size)
            except BlockingIOError:
                origin.readable = False
                return
            except OSError:
                self.execute(session.origin_disconnected(self.loop.now))
                return
            if not data or (len(data) < size and origin.plain and not self.origin_ended):
                origin.readable = False
            broke = not data and self.origin_broke  # a send has met the error already: this is no good end
            now = self.loop.now
            self.execute(session.origin_disconnected(now) if broke else session.receive_from_origin(data, now))
            if self.origin is not origin or not origin.readable:
                return
            if self.loop.overdue():
                break
        self.loop.call_soon(self.pump)

    # --- sending ---

    def send_client(self, data: bytes) -> None:
        """Send behind what is buffered, and buffer what the kernel doesn't take."""
        try:
            sent = push(self.sock, self.send_buffer, data)
        except OSError:
            self._client_broke()
            return
        self.counts[BYTES_OUT] += sent
        self.bytes_out += sent
        if sent:
            self.session.note_progress(self.loop.now)
            if self.meter is not None:
                self.meter.outward.spend(sent)
        if self.closing and not self.send_buffer:
            self._finish_closing()

    def _client_broke(self) -> None:
        if self.session.closed:
            self.close(abort=True)
        else:
            self.loop.call_soon(self._on_client_disconnected)

    @isolated
    def _on_client_disconnected(self) -> None:
        if not self.closed:
            self.execute(self.session.client_disconnected(self.loop.now))

    def send_origin(self, data: bytes) -> None:
        """As `send_client`, to the other side."""
        origin = self.origin
        assert origin is not None
        try:
            push(origin.sock, origin.out, data)
        except OSError:
            self.origin_broken()

    def origin_broken(self) -> None:
        """Send nothing more to the origin. It may have responded before it closed: that is read first."""
        assert self.origin is not None
        self.origin.readable = self.origin_ended = self.origin_broke = True
        self.loop.call_soon(self.pump)

    # --- bodies ---

    def relay_response(self, length: int | None) -> None:
        """Move a response's body to the client: `length` bytes, or all until the origin ends when it is None."""
        near, far = self._sides()
        flow = self.context.flow(far, near, length, None if self.meter is None else self.meter.outward)
        self.response_relay = BodyRelay(self, flow)
        self.loop.call_soon(self.pump)

    def relay_request(self, length: int) -> None:
        """Move `length` bytes of a request's body to the origin."""
        near, far = self._sides()
        flow = self.context.flow(near, far, length, None if self.meter is None else self.meter.inward)
        self.request_relay = BodyRelay(self, flow)
        self.loop.call_soon(self.pump)

    def _sides(self) -> tuple[Side, Side]:
        origin = self.origin
        assert origin is not None
        return (self.sock, self.sock.fileno()), (origin.sock, origin.fd)

    def body_moved(self, relay: BodyRelay, count: int, ended: bool) -> None:
        """See `RelayOwner`."""
        from_client = relay is self.request_relay
        self.context.stats.count_bytes(count, from_client)
        if from_client:
            self._request_moved(relay, count, ended)
        else:
            self._response_moved(relay, count, ended)

    def _request_moved(self, relay: BodyRelay, count: int, ended: bool) -> None:
        self.bytes_in += count
        if relay.over:
            self.request_relay = None
            self.client_readable = True  # the relay has taken the edges
            self.loop.call_soon(self.pump)
        if count or ended:
            self.execute(self.session.request_relayed(count, self.loop.now, ended))

    def _response_moved(self, relay: BodyRelay, count: int, ended: bool) -> None:
        self.bytes_out += count
        if relay.over:
            self.response_relay = None
        broke = ended and self.origin_broke  # no good end of a response: the break is reported after what came before
        if count or ended:
            self.execute(self.session.response_relayed(count, self.loop.now, ended and not broke))
        if broke and not self.closed:
            self.execute(self.session.origin_disconnected(self.loop.now))

    def body_broke(self, relay: BodyRelay, at_source: bool) -> None:
        """See `RelayOwner`. An origin may have responded before it closed: the relay of its response goes on."""
        at_client = at_source is (relay is self.request_relay)
        if relay is self.request_relay:
            relay.abort()
            self.request_relay = None
        if at_client:
            self.execute(self.session.client_disconnected(self.loop.now))
        elif relay is self.response_relay:
            self.execute(self.session.origin_disconnected(self.loop.now))
        elif self.origin is not None:
            self.origin_broken()

    # --- commands ---

    def execute(self, commands: list[Command]) -> None:
        """Execute what the session commands, in order."""
        handlers = self._handlers
        for command in commands:
            more = handlers[type(command)](self, command)
            if more:
                commands.extend(more)  # of an outcome that is known at once; such a command is the last of its list
        if self.session.deadline + QUANTUM < self.scheduled_for and not self.closed:
            self.context.timers.schedule(self)

    def attach_origin(self, origin: OriginConnection) -> None:
        """Make `origin` the other side, and take over its events."""
        self.origin = origin
        self.origin_ended = self.origin_broke = False
        self.loop.hand_over(origin.fd, self.on_origin)

    def release_origin(self, reusable: bool, authenticated: bool = False) -> None:
        """Give the origin's connection back to the pool, or close it; keep it if it is `authenticated` itself."""
        origin, self.origin = self.origin, None
        self._abort_relays()
        if origin is None:
            return
        if origin.parent is not None:
            origin.parent.left()
        reusable = reusable and not self.origin_ended and origin.is_reusable
        if authenticated or origin.authenticated:
            self._park_bound(origin, reusable)
        elif reusable:
            self.context.pool.release(origin)
        else:
            self.context.pool.close(origin)

    def _park_bound(self, origin: OriginConnection, reusable: bool) -> None:
        """Keep an origin connection for this client alone; where that can't be, end the client's connection as well."""
        origin.authenticated = True
        if self.bound is None:
            self.bound = BoundOrigin(self.loop, self.context.pool, self._stop_when_idle)
        if reusable and not self.closed:
            self.bound.park(origin, self.last.served)
        else:
            self.context.pool.close(origin)
            self.loop.call_soon(self._stop_when_idle)

    def _stop_when_idle(self) -> None:
        self.stop_keep_alive(allow_first_request=False)

    def _abort_relays(self) -> None:
        for relay in (self.request_relay, self.response_relay):
            if relay is not None:
                relay.abort()
        self.request_relay = self.response_relay = None

    def request_over(self) -> None:
        """Begin the next request's context: nothing of the one that was reported is taken over."""
        self.last, self.request = self.request, RequestContext()

    # --- for `Connection` ---

    def measure(self, meter: Meter) -> None:
        """See `MeteredConnection`. A request that was admitted already is not admitted a second time."""
        self.meter = meter
        meter.admitted = self.origin is not None or self.pending_origin is not None
        if self.request_relay is not None:
            self.request_relay.limit(meter.inward)
        if self.response_relay is not None:
            self.response_relay.limit(meter.outward)

    def info(self) -> ConnectionInfo:
        """What it is doing now; its target is that of the last request."""
        request = self.last if self.request.target is None else self.request
        upstream = "" if request.parent is None else request.parent.name
        user, target, state = request.user, request.target_text, self._state()
        return ConnectionInfo(self.client_ip, user, target, state, self.bytes_in, self.bytes_out, upstream)

    def _state(self) -> str:
        session = self.session
        if session.closed:
            return "closing"
        if session.authorizing:
            return "authorizing"
        if session.opening:
            return "connecting"
        return "idle" if session.idle else "active"

    def reconfigure(self, policy: SessionConfig) -> None:
        """See `Connection`."""
        self.session.apply_config(policy)

    # --- ends ---

    @property
    def deadline(self) -> float:
        """When it expires."""
        return NEVER if self.closed else self.session.deadline

    @isolated
    def expire(self) -> None:
        """The session's deadline has passed. What the kernel still delivers counts as movement."""
        waiting = unsent(self.sock.fileno())
        if waiting and waiting != self._unsent:
            self._unsent = waiting
            self.session.note_progress(self.loop.now)
            return
        if self.meter is not None and self.meter.waiting and not self.session.idle:
            self.session.note_progress(self.loop.now)  # a limit of ours holds it up
            if self.session.deadline > self.loop.now:
                return
        if self.closing:
            self.close(abort=True)
            return
        pending, now = self.pending_origin, self.loop.now
        self._cancel_pending_origin()
        if pending is not None and pending.resolving and self.session.opening:
            self.execute(self.session.failed(failures.dns_timed_out("the name did not resolve in time"), now))
        else:
            self.execute(self.session.timed_out(now))

    def _cancel_pending_origin(self) -> None:
        pending, self.pending_origin = self.pending_origin, None
        if pending is not None:
            pending.cancel()

    def end(self, reason: str) -> None:
        """End it from outside; what is under way is reported with `reason`."""
        if not self.closed:
            self.execute(self.session.abort(reason, self.loop.now))

    @isolated
    def stop_keep_alive(self, allow_first_request: bool) -> None:
        """Serve no further request; finish what is under way. With `allow_first_request` an unused one may send one."""
        self.session.disable_keep_alive()
        self.client_readable = True
        self.pump()  # a request that has come already is the last one
        if allow_first_request and not self.session.has_request:
            return
        if self.session.idle and not self.closing and not self.closed:
            self.close_when_sent()

    def close_when_sent(self) -> None:
        """Close it once the client has been sent all that is buffered."""
        self.closing = True
        if not self.send_buffer:
            self._finish_closing()

    def _finish_closing(self) -> None:
        """Close it, all being sent, so that the client can read the last of it (see `lingering_close`)."""
        if self.closed:
            return
        if self.client_ended:
            self.close(abort=False)
        else:
            self._release()
            self.context.lingering.close(self.sock, self.client_ip)

    def close(self, abort: bool) -> None:
        """Close it now; with `abort` the client sees a reset."""
        if self.closed:
            return
        self._release()
        if abort:
            reset_on_close(self.sock)
        self.loop.forget(self.sock.fileno())
        self.sock.close()

    def _release(self) -> None:
        """Release everything but the client's socket."""
        self.closed = True
        self._cancel_pending_origin()
        if self.pending_auth is not None:
            self.pending_auth.cancel()
        if self.datagrams is not None:
            self.datagrams.close()
        self.release_origin(reusable=False)
        if self.bound is not None:
            self.bound.close()
        self.context.remove(self)

    def crashed(self, error: Exception) -> None:
        """See `isolation`."""
        self.context.crashed(self, error)

    def drop(self) -> None:
        """See `Connection`."""
        self.closed = True
        origin = self.origin
        for sock in (self.sock, self.datagrams, None if origin is None else origin.sock):
            if sock is not None:
                self.loop.forget(sock.fileno())
                sock.close()

    def __repr__(self) -> str:
        return f"<ClientConnection {self.client_ip} {self.session!r}, {len(self.send_buffer)} bytes to send>"
