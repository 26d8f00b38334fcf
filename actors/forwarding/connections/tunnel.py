"""A tunnel: two flows between a client and an origin, each with its own end (half-close), one idle deadline."""

from __future__ import annotations

import select
import socket
from typing import Final

from actors.forwarding.connection import ConnectionInfo
from actors.forwarding.connections.allowed_now import peer_of, tunnel_refusal
from actors.forwarding.context import ForwardingContext
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import Meter
from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.net.splice import EMPTY, ENDED, FULL, THROTTLED, YIELDED, AnyFlow, PipesExhausted
from actors.forwarding.net.timer_wheel import NEVER
from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.http.targets import Authority
from actors.net.transport import Transport, unsent

_READ: Final = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_WRITABLE: Final = select.EPOLLOUT
_BROKEN: Final = select.EPOLLERR


class Tunnel:
    """Both sockets joined byte for byte. Takes over their handlers; reports its end to `context.tunnel_ended`."""

    __slots__ = (
        "_client",
        "_context",
        "_down",
        "_origin",
        "_pending_down",
        "_pending_up",
        "_report",
        "_source_rule",
        "_target",
        "_unsent",
        "_up",
        "_upstream",
        "client_ip",
        "deadline",
        "listen_port",
        "meter",
        "number",
        "scheduled_for",
    )

    def __init__(
        self,
        context: ForwardingContext,
        client: Transport,
        client_ip: str,
        listen_port: int,
        origin: OriginConnection,
        pending_down: bytes,
        report: Report,
        number: int,
        meter: Meter | None = None,
        client_readable: bool = True,
        target: Authority | None = None,
    ) -> None:
        """`client_readable`, as `origin.readable`: whether bytes may have come whose event is over."""
        self._context = context
        self._client = client
        self._origin = origin.sock
        self._upstream = origin.upstream
        self._source_rule = origin.source_rule
        self.client_ip = client_ip
        self.listen_port = listen_port
        self._unsent = 0
        self._report = report
        self._target = target
        self.number = number
        self._pending_down = pending_down
        self._pending_up = bytes(origin.out)
        client_fd = client.fileno()
        self.meter = meter
        inward, outward = (None, None) if meter is None else (meter.inward, meter.outward)
        near, far = (client, client_fd), (origin.sock, origin.fd)
        self._up: AnyFlow | None = context.flow(near, far, throttle=inward)
        self._down: AnyFlow | None = context.flow(far, near, throttle=outward)
        self.deadline = context.loop.now + context.policy.session.timeout
        self.scheduled_for = NEVER
        context.loop.set_handler(client_fd, self._on_client)
        context.loop.set_handler(origin.fd, self._on_origin)
        context.timers.schedule(self)
        if client_readable or origin.readable or self._pending_up or pending_down:
            context.loop.call_soon(self._pump_both)  # the events of what came before are over

    @isolated
    def expire(self) -> None:
        """Nothing moved for too long. What the kernel still delivers counts as movement."""
        waiting = unsent(self._client.fileno()) + unsent(self._origin.fileno())
        held = self.meter is not None and self.meter.waiting
        if held or (waiting and waiting != self._unsent):
            self._unsent = waiting
            self.deadline = self._context.loop.now + self._context.policy.session.timeout
            return
        self.end("connection_read_timeout")

    def end(self, reason: str) -> None:
        """Close both sides, once."""
        if self.deadline == NEVER:
            return
        self.deadline = NEVER
        report = self._report
        report.reason = reason or report.reason
        up, down = self._up, self._down
        if up is not None and down is not None:
            report.bytes_in += up.moved
            report.bytes_out += down.moved
            up.abort()
            down.abort()
        self._up = self._down = None
        self._close_sockets()
        if self._upstream is not None:
            self._upstream.release()
            self._upstream.count_bytes(report.bytes_in, report.bytes_out)
        self._context.tunnel_ended(self, report)

    def crashed(self, error: Exception) -> None:
        """See `isolation`."""
        self._context.crashed(self, error)

    def drop(self) -> None:
        """See `Connection`."""
        self.deadline = NEVER
        self._up = self._down = None
        self._close_sockets()

    def _close_sockets(self) -> None:
        for sock in (self._client, self._origin):
            self._context.loop.unwatch_closed(sock.fileno())
            sock.close()

    def measure(self, meter: Meter) -> None:
        """See `Connection`. A flow asks its throttle before each piece, so the next piece is limited."""
        self.meter = meter
        meter.holder = self
        if self._up is not None and self._down is not None:
            self._up.throttle, self._down.throttle = meter.inward, meter.outward

    @isolated
    def destinations_changed(self) -> None:
        """See `MeteredConnection`."""
        own = self._context.own_rules(self.meter)
        if not own or self._target is None or self.deadline == NEVER:
            return
        failure = tunnel_refusal(own, self._target, self._origin, self._upstream is not None)
        if failure is not None:
            self._report.because(failure)
            self.end(failure.reason)

    @isolated
    def policies_changed(self) -> None:
        """See `Connection`."""
        if self._target is None or self.deadline == NEVER:
            return
        from actors.forwarding.connections.policy_handlers import tunnel_refused  # only with policies

        address = None if self._upstream is not None else peer_of(self._origin, self._target)
        subject = self._target, self.client_ip, self.listen_port, self._report, self.meter
        failure = tunnel_refused(self._context, *subject, address)
        if failure is not None:
            self._report.because(failure)
            self.end(failure.reason)

    def info(self) -> ConnectionInfo:
        """What it is doing now; its bytes are those from the request for it on."""
        report, up, down = self._report, self._up, self._down
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
    def _pump_both(self) -> None:
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
            if mask & _READ and reading.progress is EMPTY:
                self._pump_flow(reading)
        except PipesExhausted:
            self._context.wait_for_pipes(self._pump_both)
            return
        except OSError:
            self.end("connection_terminated")
            return
        if mask & _BROKEN and reading.progress is not EMPTY:
            self.end("connection_terminated")  # a reset that no read will report, since nothing is read now
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
            self._context.wait_for_pipes(self._pump_both)
            return
        except OSError:
            self.end("connection_terminated")
            return
        if self._both_ended:
            self.end("")

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
        self._context.loop.call_soon(self._pump_both)
        return True

    def __repr__(self) -> str:
        return f"<Tunnel for {self.client_ip} to {self._report.url}: {self._up!r}, {self._down!r}>"


def _send(sock: Transport, data: bytes) -> bytes:
    """Send, and return what the kernel did not take."""
    if not data:
        return b""
    try:
        return data[sock.send(data) :]
    except BlockingIOError:
        return data
