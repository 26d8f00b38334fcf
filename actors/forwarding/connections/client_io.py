"""The two sides of a client connection: edge-triggered reading, buffered sending, and bodies past the session.

Back-pressure is one rule in both directions: nothing is read from one side while bytes for the other side wait here.
So at most one read's worth is ever buffered, whatever the speeds. Sockets are edge-triggered, so "there may be more to
read" is remembered (`client_readable`, `OriginConnection.readable`) until a read says that there isn't.

A body that is moved from one side of an exchange to the other, because no byte of it is the session's business. A
client connection has at most one relay in each direction, each for as long as one body takes. A relay follows the
connection's rule of back-pressure: it stands still while bytes for its destination wait in the connection.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from typing import Final, Protocol

from actors.counters import BYTES_IN, BYTES_OUT
from actors.forwarding.context import ForwardingContext, Side
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.token_bucket import Throttle
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.net.dialer import ENDED, READABLE
from actors.forwarding.net.splice import COMPLETE, EMPTY, THROTTLED, YIELDED, AnyFlow, PipesExhausted
from actors.forwarding.net.splice import ENDED as SOURCE_ENDED
from actors.forwarding.protocols.commands import Command
from actors.net.send_buffer import push
from actors.net.transport import Transport


class RelayOwner(Protocol):
    """The client connection, as far as a relay needs it."""

    context: ForwardingContext

    def pump(self) -> None:
        """Do all that can be done, the relay among it."""

    def body_moved(self, relay: BodyRelay, count: int, ended: bool) -> None:
        """Bytes were moved; `ended`: the source has ended. The relay may be `over` with that."""

    def body_broke(self, relay: BodyRelay, at_source: bool) -> None:
        """The connection on one side of the relay is broken."""


class BodyRelay:
    """One body on its way."""

    __slots__ = ("_flow", "_owner", "over")

    def __init__(self, owner: RelayOwner, flow: AnyFlow) -> None:
        self._owner = owner
        self._flow = flow
        self.over = False
        """True when all of the body is moved."""

    def pump(self) -> None:
        """Move what can be moved now."""
        owner, flow = self._owner, self._flow
        before = flow.moved
        try:
            progress = flow.pump()
        except PipesExhausted:
            owner.context.wait_for_pipes(owner.pump)
            return
        except OSError:
            owner.body_broke(self, at_source=flow.progress is EMPTY)
            return
        ended = progress is SOURCE_ENDED
        self.over = ended or progress is COMPLETE
        if progress is YIELDED:
            owner.context.loop.call_soon(owner.pump)
        elif progress is THROTTLED and flow.throttle is not None:
            flow.throttle.wait(owner.pump)
        owner.body_moved(self, flow.moved - before, ended)

    def limit(self, throttle: Throttle) -> None:
        """Move the rest by this throttle."""
        self._flow.throttle = throttle

    def abort(self) -> None:
        """Discard what is under way."""
        self._flow.abort()

    def __repr__(self) -> str:
        return f"<BodyRelay {self._flow!r}>"


READ_SIZE: Final = 64 * 1024
READS: Final = 16
"""Reads from one socket before the others get their turn."""


class ClientIO(ABC):
    """What `ClientConnection` is about bytes. `execute` and the ends are the subclass's.

    - `sock` is the client's side with `send_buffer`, the bytes that the kernel doesn't take yet, and `client_readable`,
      `client_ended`;
    - `origin` is the other side, if any, with `origin_ended` and `origin_broke`;
    - `request_relay` and `response_relay` are the bodies that are moved past the session;
    - `listen_port` is the port of the proxy that the client came to;
    - `closing` means that it closes when all is sent, `closed` that it is closed or has become a tunnel.
    """

    __slots__ = (
        "_short_is_all",
        "bytes_in",
        "bytes_out",
        "client_ended",
        "client_ip",
        "client_readable",
        "closed",
        "closing",
        "context",
        "counts",
        "listen_port",
        "loop",
        "meter",
        "number",
        "origin",
        "origin_broke",
        "origin_ended",
        "request_relay",
        "response_relay",
        "send_buffer",
        "session",
        "sock",
    )

    def __init__(self, context: ForwardingContext, sock: Transport, client_ip: str, listen_port: int) -> None:
        self.context = context
        self.loop = context.loop
        self.counts = context.stats.values
        self.sock = sock
        self.client_ip = client_ip
        self.listen_port = listen_port
        self.number = context.new_number()
        self.session = context.new_session()
        self.meter = context.limits.new_meter()
        self._short_is_all = isinstance(sock, socket.socket)  # TLS returns its bytes record by record
        self.client_readable = self.client_ended = False
        self.send_buffer = bytearray()
        self.closing = self.closed = False
        self.origin: OriginConnection | None = None
        self.origin_ended = self.origin_broke = False
        self.request_relay: BodyRelay | None = None
        self.response_relay: BodyRelay | None = None
        self.bytes_in = self.bytes_out = 0

    @abstractmethod
    def execute(self, commands: list[Command]) -> None:
        """Execute what the session commands, in order."""

    @abstractmethod
    def close(self, abort: bool) -> None:
        """Close it now; with `abort` the client sees a reset."""

    @abstractmethod
    def _finish_closing(self) -> None:
        """Close it, all being sent, so that the client can read the last of it (see `lingering_close`)."""

    @abstractmethod
    def crashed(self, error: Exception) -> None:
        """See `isolation`."""

    @abstractmethod
    def handshake_failed(self, error: OSError) -> None:
        """Count and record that TLS with the client failed."""

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
        except Exception as error:  # noqa: BLE001 - as in `on_client`
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
        for _ in range(READS):
            if self.closed or self.request_relay is not None or not session.reads_client or self.origin_blocked():
                return
            meter = self.meter
            size = READ_SIZE if meter is None else min(READ_SIZE, meter.inward.available())
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
                    self.handshake_failed(error)
                self.execute(session.client_disconnected(self.loop.now))
                return
            self.counts[BYTES_IN] += len(data)
            self.bytes_in += len(data)
            if meter is not None:
                meter.inward.consume(len(data))
            if not data or (len(data) < size and self._short_is_all and not self.client_ended):
                self.client_readable = False
            self.execute(session.receive_from_client(data, self.loop.now))
            if not self.client_readable:
                return
            if self.loop.turn_exceeded():  # small chunks are a thousand times the work of large ones
                break
            session = self.session  # the first bytes may have begun another
        self.loop.call_soon(self.pump)

    def origin_blocked(self) -> bool:
        """Whether bytes wait that the origin does not take yet."""
        return self.origin is not None and bool(self.origin.out)

    def _read_origin(self) -> None:
        session = self.session
        for _ in range(READS):
            origin = self.origin
            if origin is None or self.send_buffer or self.response_relay is not None or not session.reads_origin:
                return
            meter = self.meter
            size = READ_SIZE if meter is None else min(READ_SIZE, meter.outward.available())
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
            if self.loop.turn_exceeded():
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
                self.meter.outward.consume(sent)
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

    def _abort_relays(self) -> None:
        for relay in (self.request_relay, self.response_relay):
            if relay is not None:
                relay.abort()
        self.request_relay = self.response_relay = None
