"""A tunnel: two flows between a client and an origin, each with its own end (half-close), one idle deadline."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.decision import Subject, refused_by_own_now, refused_by_policies_now
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import Meter, account_of
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.net.splice import EMPTY, ENDED, FULL, PAUSED, THROTTLED, YIELDED, AnyFlow, PipesExhausted
from actors.forwarding.net.timer_wheel import NEVER
from actors.forwarding.open_connections import ConnectionInfo
from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.net.socks_wire import UNSPECIFIED, endpoint_of
from actors.net.transport import Transport, unsent

if TYPE_CHECKING:
    from actors.forwarding.connections.tls_name_gate import TlsNameGate

_READ: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_WRITABLE: Final = select.EPOLLOUT
_BROKEN: Final = select.EPOLLERR
_UP, _DOWN, _END = 1, 2, 4


def peer_of(origin: Transport, target: Authority) -> str:
    """The address that a connection goes to; where it has broken meanwhile, any will do to find that out."""
    try:
        return endpoint_of(origin.getpeername())[0]
    except OSError:
        return target.host if target.literal else UNSPECIFIED[0]


class TunnelConnection:
    """Both sockets joined byte for byte. Takes over their handlers; reports its end to `context.tunnel_ended`."""

    __slots__ = (
        "_client",
        "_context",
        "_down",
        "_gate",
        "_lingers",
        "_origin",
        "_pending_down",
        "_pending_up",
        "_source_rule",
        "_unread",
        "_unsent",
        "_up",
        "_upstream",
        "accepted",
        "client_ip",
        "deadline",
        "listen_port",
        "meter",
        "number",
        "report",
        "scheduled_for",
        "target",
    )

    def __init__(
        self, client: ClientConnection, origin: OriginConnection, report: Report, gate: TlsNameGate | None
    ) -> None:
        """With a `gate` the client's octets, and the origin's where it may refuse the tunnel, pass when that lets
        them."""
        context = self._context = client.context
        near_side = self._client = client.sock
        self._origin = origin.sock
        self._upstream = origin.upstream
        self._source_rule = origin.source_rule
        self.client_ip = client.client_ip
        self.listen_port = client.listen_port
        self._unsent = 0
        self._unread = 0
        """Of sides that are paused: `_UP`, `_DOWN` where there may be bytes whose event is over, `_END` with an end."""
        self.report = report
        self.target = client.request.target
        self.number = client.number
        self._pending_down = bytes(client.send_buffer)
        self._pending_up = bytes(origin.out)
        client_fd = near_side.fileno()
        meter = self.meter = client.meter
        inward, outward = (None, None) if meter is None else (meter.inward, meter.outward)
        near, far = (near_side, client_fd), (origin.sock, origin.fd)
        self._up: AnyFlow | None = context.flow(near, far, throttle=inward)
        self._down: AnyFlow | None = context.flow(far, near, throttle=outward)
        self.deadline = context.loop.now + context.policy.session.timeout
        self.scheduled_for = NEVER
        self._lingers = False
        self.accepted: Authority | None = None
        """What the handshake names in place of the target: what refuses it later ends the tunnel."""
        self._gate = gate
        waiting = False
        if gate is not None:
            self._up.progress = PAUSED
            if gate.enforced:
                self._down.progress = PAUSED
            waiting = gate.guard(self)
        context.loop.set_handler(client_fd, self._on_client)
        context.loop.set_handler(origin.fd, self._on_origin)
        context.timers.schedule(self)
        readable = client.client_readable or client.client_ended or origin.readable
        if waiting or readable or self._pending_up or self._pending_down:
            context.loop.call_soon(self.pump_both)  # the events of what came before are over

    @isolated
    def expire(self) -> None:
        """Nothing moved for too long. What the kernel still delivers counts as movement."""
        waiting = unsent(self._client.fileno()) + unsent(self._origin.fileno())
        throttled = self.meter is not None and self.meter.waiting
        if throttled or (waiting and waiting != self._unsent):
            self._unsent = waiting
            self.deadline = self._context.loop.now + self._context.policy.session.timeout
            return
        self.end("connection_read_timeout")

    def end(self, reason: str) -> None:
        """Close both sides, once."""
        if self.deadline == NEVER:
            return
        self.deadline = NEVER
        report = self.report
        report.reason = reason or report.reason
        up, down = self._up, self._down
        if up is not None and down is not None:
            report.bytes_in += up.moved
            report.bytes_out += down.moved
            up.abort()
            down.abort()
        self._up = self._down = None
        self._close_gate()
        self._close_sockets()
        if self._upstream is not None:
            self._upstream.release()
            self._upstream.count_bytes(report.bytes_in, report.bytes_out)
        self._context.tunnel_ended(self, report)

    def crashed(self, error: Exception) -> None:
        """See `isolation`."""
        self._context.crashed(self, error)

    def drop(self) -> None:
        """See `OpenConnection`."""
        self.deadline = NEVER
        self._up = self._down = None
        self._close_gate()
        self._close_sockets()

    def _close_gate(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.close()

    def _close_sockets(self) -> None:
        if self._lingers:
            self._context.lingering.close(self._client, self.client_ip)
        for sock in (self._origin,) if self._lingers else (self._client, self._origin):
            self._context.loop.unwatch_closed(sock.fileno())
            sock.close()

    # --- for its gate (`tls_name_gate`) ---

    @property
    def blocked(self) -> bool:
        """Whether bytes wait that one side does not take yet."""
        return bool(self._pending_up or self._pending_down)

    def read(self, from_client: bool, size: int, wake: Callable[[], None]) -> bytes | None:
        """Up to so many bytes of a paused side; `b""` at its end. None: there are none now; where a limit is why,
        `wake` is called when there may be. Raises `OSError` when the side is broken."""
        throttle = None
        if self.meter is not None:
            throttle = self.meter.inward if from_client else self.meter.outward
            size = min(size, throttle.available())
            if not size:
                throttle.wait(wake)
                return None
        side = self._client if from_client else self._origin
        try:
            data: bytes | None = side.recv(size)
        except BlockingIOError:
            data = None
        if data is None or (len(data) < size and isinstance(side, socket.socket)):
            self._unread &= ~(_UP if from_client else _DOWN)
        if data is None:
            return None
        if not data:
            self._unread |= _END  # its event may have come before the tunnel: no other will tell its flow
        if throttle is not None:
            throttle.consume(len(data))
        self._context.stats.count_bytes(len(data), from_client)
        if from_client:
            self.report.bytes_in += len(data)
        else:
            self.report.bytes_out += len(data)
        return data

    def send_origin(self, data: bytes) -> None:
        """Send it before all that is still to be read of the client. Raises `OSError`."""
        self._pending_up = _send(self._origin, self._pending_up + data)

    def send_client(self, data: bytes) -> None:
        """As `send_origin`, to the other side."""
        self._pending_down = _send(self._client, self._pending_down + data)

    def release_origin(self) -> None:
        """Let all that the origin sends pass from now on."""
        if self._down is not None and self._down.progress is PAUSED:
            self._down.progress = EMPTY
        if self._unread:
            self._context.loop.call_soon(self.pump_both)

    def open(self, data: bytes) -> None:
        """Send the origin what was read, and let all pass from now on: there is no gate any more. Raises `OSError`."""
        self._gate = None
        if self._up is not None:
            self.send_origin(data)
            self._up.progress = EMPTY
            self.release_origin()

    def refuse(self, failure: Failure, alert: bytes) -> None:
        """End it so that the client can read the alert. The origin gets nothing of what was read."""
        if self.deadline == NEVER:
            return
        self.report.because(failure)
        self.report.bytes_out += len(alert)
        self._context.stats.count_bytes(len(alert), from_client=False)
        if self.meter is not None:
            self.meter.outward.consume(len(alert))
        try:
            self.send_client(alert)
            self._lingers = not self._pending_down
        except OSError:
            self._lingers = False  # the client is gone
        self.end(failure.reason)

    @property
    def subject(self) -> Subject:
        """What policies may want to know of the one that has asked for it."""
        report = self.report
        return Subject(self.client_ip, self.listen_port, report.user, account_of(self.meter), report.params)

    @property
    def peer(self) -> str | None:
        """The origin's address; None behind an upstream."""
        return None if self._upstream is not None or self.target is None else peer_of(self._origin, self.target)

    def measure(self, meter: Meter) -> None:
        """See `OpenConnection`. A flow asks its throttle before each piece, so the next piece is limited."""
        self.meter = meter
        meter.holder = self
        if self._up is not None and self._down is not None:
            self._up.throttle, self._down.throttle = meter.inward, meter.outward

    @isolated
    def destinations_changed(self) -> None:
        """See `MeteredConnection`."""
        own = self._context.own_rules(self.meter)
        for named in self._named() if own else ():
            self._end_because(refused_by_own_now(own, named, self.peer))

    @isolated
    def policies_changed(self) -> None:
        """See `OpenConnection`."""
        for named in self._named():
            self._end_because(refused_by_policies_now(self._context, self.subject, named, self.report, self.peer))

    def _named(self) -> tuple[Authority, ...]:
        """What it is open for: the target, and another name in its handshake."""
        if self.target is None or self.deadline == NEVER:
            return ()
        return (self.target,) if self.accepted is None else (self.target, self.accepted)

    def _end_because(self, failure: Failure | None) -> None:
        if failure is not None and self.deadline != NEVER:
            self.report.because(failure)
            self.end(failure.reason)

    def info(self) -> ConnectionInfo:
        """What it is doing now; its bytes are those from the request for it on."""
        report, up, down = self.report, self._up, self._down
        return ConnectionInfo(
            self.client_ip,
            report.user,
            report.url,
            "tunnel",
            report.bytes_in + (up.moved if up is not None else 0),
            report.bytes_out + (down.moved if down is not None else 0),
            "" if self._upstream is None else self._upstream.name,
            report.credential,
            report.source_address,
            self._source_rule,
            report.parameters,
            report.pool,
            self.listen_port,
            report.tls_name,
            report.alpn,
            report.tls_version,
        )

    def _on_client(self, mask: int) -> None:
        try:
            self._pump(mask, self._up, self._down)
        except Exception as error:  # noqa: BLE001 - as `isolated`, without a call more
            self.crashed(error)

    def _on_origin(self, mask: int) -> None:
        try:
            self._pump(mask, self._down, self._up)
        except Exception as error:  # noqa: BLE001 - as in `_on_client`
            self.crashed(error)

    @isolated
    def pump_both(self) -> None:
        """Move what can be moved: the events of what came before are over."""
        self._pump(select.EPOLLIN | select.EPOLLOUT, self._up, self._down)
        self._pump(select.EPOLLIN, self._down, self._up)

    def _pump(self, mask: int, reading: AnyFlow | None, writing: AnyFlow | None) -> None:
        """One side is ready: `reading` flows from it, `writing` flows to it."""
        if reading is None or writing is None:
            return
        self.deadline = self._context.loop.now + self._context.policy.session.timeout
        try:
            if (self._pending_up or self._pending_down) and not self._flush():
                return
            if mask & _WRITABLE and writing.progress is FULL:
                self._pump_flow(writing)
            if mask & _READ:
                if reading.progress is EMPTY:
                    self._pump_flow(reading)
                elif self._gate is not None and reading.progress is PAUSED:
                    ended = _END if mask & (select.EPOLLRDHUP | select.EPOLLHUP) else 0
                    self._unread |= ended | (_UP if reading is self._up else _DOWN)
                    self._gate.read(reading is self._up)
                    if self._up is None:
                        return
        except PipesExhausted:
            self._context.wait_for_pipes(self.pump_both)
            return
        except OSError:
            self._broken()
            return
        if mask & _BROKEN and reading.progress is not EMPTY:
            self._broken()  # a reset that no read will report, since nothing is read now
            return
        if reading.progress is ENDED and writing.progress is ENDED:
            self.end("")

    def _pump_flow(self, flow: AnyFlow) -> None:
        before = flow.moved
        progress = flow.pump()
        self._context.stats.count_bytes(flow.moved - before, from_client=flow is self._up)
        if progress is YIELDED:
            self._context.loop.call_soon(lambda: self._resume(flow))
        elif progress is THROTTLED and flow.throttle is not None:
            flow.throttle.wait(lambda: self._resume(flow))
        elif progress is ENDED:
            destination = self._origin if flow is self._up else self._client
            if not (
                self._both_ended and isinstance(destination, socket.socket)
            ):  # else closing is enough; TLS needs more
                destination.shutdown(socket.SHUT_WR)

    @isolated
    def _resume(self, flow: AnyFlow) -> None:
        if self._up is None or self._down is None:
            return
        try:
            self._pump_flow(flow)
        except PipesExhausted:
            self._context.wait_for_pipes(self.pump_both)
            return
        except OSError:
            self._broken()
            return
        if self._both_ended:
            self.end("")

    def _broken(self) -> None:
        """One side has reset. Of a client that ended its own side before, that is no failure: most programs close and
        don't wait for the end of the server's TLS, and the kernel then resets what still comes (RFC 9293, 3.6.1).
        """
        closed = False
        if self._up is not None and self._up.progress is ENDED:
            client = select.poll()
            client.register(self._client.fileno(), 0)
            closed = bool(client.poll(0))  # POLLHUP: nothing can be sent to it any more
        self.end("" if closed else "connection_terminated")

    @property
    def _both_ended(self) -> bool:
        """Whether both sides have ended, and all of it is delivered."""
        up, down = self._up, self._down
        return up is not None and up.progress is ENDED and down is not None and down.progress is ENDED

    def _flush(self) -> bool:
        """Send what was read before the tunnel began; True when all of it is sent."""
        self._pending_up = _send(self._origin, self._pending_up)
        self._pending_down = _send(self._client, self._pending_down)
        if self._pending_up or self._pending_down:
            return False
        self._context.loop.call_soon(self.pump_both)
        return True

    def __repr__(self) -> str:
        return f"<TunnelConnection for {self.client_ip} to {self.report.url}: {self._up!r}, {self._down!r}>"


def _send(sock: Transport, data: bytes) -> bytes:
    """Send, and return what the kernel did not take."""
    if not data:
        return b""
    try:
        return data[sock.send(data) :]
    except BlockingIOError:
        return data
