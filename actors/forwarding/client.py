"""One client connection on real sockets: carries out what its session commands, and tells it what happens.

Back-pressure is one rule in both directions: nothing is read from one side while bytes for the other side wait here.
So at most one read's worth is ever held, whatever the speeds. Sockets are edge-triggered, so "there may be more to
read" is remembered (`_client_readable`, `Origin.readable`) until a read says that there isn't.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import Any

from actors.forwarding import errors
from actors.forwarding.commands import (
    Associate,
    Authorize,
    CloseClient,
    Command,
    LeaveOrigin,
    Listen,
    Open,
    RelayDatagrams,
    RelayToClient,
    RelayToOrigin,
    Report,
    ToClient,
    ToOrigin,
    Tunnel,
)
from actors.forwarding.connections import Live
from actors.forwarding.datagrams import Association, relay_socket
from actors.forwarding.deadlines import NEVER, QUANTUM
from actors.forwarding.dial import Dial
from actors.forwarding.errors import Failure
from actors.forwarding.flow import AnyFlow, OutOfPipes, Progress
from actors.forwarding.http.targets import Authority
from actors.forwarding.inbound import Inbound
from actors.forwarding.lingering import linger
from actors.forwarding.pool import Origin
from actors.forwarding.sending import push
from actors.forwarding.serving import Serving, Side
from actors.forwarding.socks.wire import Endpoint, endpoint_of
from actors.forwarding.transport import Transport, reset_on_close, unsent
from actors.forwarding.tunnel import Tunnel as RunningTunnel

READ_SIZE = 64 * 1024
ROUNDS = 16
"""Reads from one socket before the others get their turn."""

_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_IN = select.EPOLLIN | _ENDED


class Client:
    """A client connection, whatever its session speaks."""

    __slots__ = (
        "_client_ended",
        "_client_readable",
        "_closing",
        "_count",
        "_dial",
        "_down",
        "_loop",
        "_origin",
        "_origin_broke",
        "_origin_ended",
        "_out",
        "_over",
        "_question",
        "_relay",
        "_serving",
        "_session",
        "_short_is_all",
        "_sock",
        "_target",
        "_unsent",
        "_up",
        "_user",
        "bytes_in",
        "bytes_out",
        "client_ip",
        "noted",
        "number",
        "reported",
    )

    def __init__(self, serving: Serving, sock: Transport, client_ip: str) -> None:
        self._serving = serving
        self._loop = serving.loop
        self._count = serving.count
        self._sock = sock
        self.client_ip = client_ip
        self._session = serving.new_session()
        self._short_is_all = isinstance(sock, socket.socket)  # TLS gives its bytes record by record
        self._client_readable = False
        self._client_ended = False
        self._out = bytearray()
        self._closing = False
        self._over = False
        self._question: object | None = None
        self._unsent = 0
        self._origin: Origin | None = None
        self._origin_ended = False
        self._origin_broke = False
        self._dial: Dial | Inbound | None = None
        self._relay: socket.socket | None = None
        self._up: AnyFlow | None = None
        self._down: AnyFlow | None = None
        self.number = serving.new_number()
        self.bytes_in = self.bytes_out = 0
        self._target: Authority | None = None
        self._user = ""
        self.reported = ""
        """What rules in report mode would have refused about this client."""
        self.noted = NEVER
        serving.deadlines.note(self)

    @property
    def fileno(self) -> int:
        """The descriptor of the client's connection."""
        return self._sock.fileno()

    # --- what the kernel says ---

    def on_client(self, mask: int) -> None:
        """The client's socket is ready for something."""
        if mask & _IN:
            self._client_readable = True
            if mask & _ENDED:
                self._client_ended = True
        if self._out or self._origin is not None:
            self._go_on()
        elif self._client_readable:
            self._read_client()  # the common case: nothing is under way, a request comes

    def _on_origin(self, mask: int) -> None:
        """The origin's socket is ready for something."""
        origin = self._origin
        if origin is None:
            return
        if mask & _IN:
            origin.readable = True
            if mask & _ENDED:
                self._origin_ended = True
        self._go_on()

    def _go_on(self) -> None:
        """Do what can be done: send what waits, move what flows, read what is wanted."""
        if self._over:
            return
        if self._out:
            self._send_client(b"")
        origin = self._origin
        if origin is not None:
            if origin.out:
                self._send_origin(b"")
            if origin.readable and not self._out and self._down is None:
                self._read_origin()
            if self._down is not None:
                self._flow_down()
        if self._client_readable and not self._over:
            self._read_client()
        if self._up is not None:
            self._flow_up()

    # --- reading ---

    def _read_client(self) -> None:
        session = self._session
        for _ in range(ROUNDS):
            if self._over or self._up is not None or not session.reads_client or self._origin_waits():
                return
            try:
                data = self._sock.recv(READ_SIZE)
            except BlockingIOError:
                self._client_readable = False
                return
            except OSError:
                self._perform(session.client_lost(self._loop.now))
                return
            self._count.bytes_in += len(data)
            self.bytes_in += len(data)
            if not data or (len(data) < READ_SIZE and self._short_is_all and not self._client_ended):
                self._client_readable = False
            self._perform(session.receive_from_client(data, self._loop.now))
            if not self._client_readable:
                return
        self._loop.call_soon(self._go_on)

    def _origin_waits(self) -> bool:
        return self._origin is not None and bool(self._origin.out)

    def _read_origin(self) -> None:
        session = self._session
        for _ in range(ROUNDS):
            origin = self._origin
            if origin is None or self._out or self._down is not None or not session.reads_origin:
                return
            try:
                data = origin.sock.recv(READ_SIZE)
            except BlockingIOError:
                origin.readable = False
                return
            except OSError:
                self._perform(session.origin_lost(self._loop.now))
                return
            if not data or (len(data) < READ_SIZE and not self._origin_ended):
                origin.readable = False
            broke = not data and self._origin_broke  # the error was told to a send already: this is no good end
            now = self._loop.now
            self._perform(session.origin_lost(now) if broke else session.receive_from_origin(data, now))
            if self._origin is not origin or not origin.readable:
                return
        self._loop.call_soon(self._go_on)

    # --- sending ---

    def _send_client(self, data: bytes) -> None:
        """Send, behind what waits already; keep what the kernel doesn't take."""
        try:
            sent = push(self._sock, self._out, data)
        except OSError:
            self._client_broke()
            return
        self._count.bytes_out += sent
        self.bytes_out += sent
        if sent:
            self._session.moved(self._loop.now)
        if self._closing and not self._out:
            self._finish_closing()

    def _client_broke(self) -> None:
        """There is no way to the client any more."""
        if self._session.closed:
            self._close(abort=True)
        else:
            self._loop.call_soon(self._tell_client_lost)

    def _tell_client_lost(self) -> None:
        if not self._over:
            self._perform(self._session.client_lost(self._loop.now))

    def _send_origin(self, data: bytes) -> None:
        origin = self._origin
        assert origin is not None
        try:
            push(origin.sock, origin.out, data)
        except OSError:
            # The origin may have answered before it closed: what it said is read before it is given up.
            origin.readable = self._origin_ended = self._origin_broke = True
            self._loop.call_soon(self._go_on)

    # --- bulk ---

    def _flow_down(self) -> None:
        flow = self._down
        if flow is None or self._out:
            return
        before = flow.moved
        try:
            progress = flow.pump()
        except OutOfPipes:
            self._serving.wait_for_pipes(self._go_on)
            return
        except OSError:
            session, now = self._session, self._loop.now
            self._perform(session.origin_lost(now) if flow.progress is Progress.EMPTY else session.client_lost(now))
            return
        moved = flow.moved - before
        self._serving.moved(moved, from_client=False)
        self.bytes_out += moved
        ended = progress is Progress.ENDED
        if progress is Progress.TURN:
            self._loop.call_soon(self._go_on)
        if ended or progress is Progress.COMPLETE:
            self._down = None
        broke = ended and self._origin_broke
        if moved or ended:
            self._perform(self._session.answer_relayed(moved, self._loop.now, ended and not broke))
        if broke and not self._over:
            self._perform(self._session.origin_lost(self._loop.now))

    def _flow_up(self) -> None:
        flow = self._up
        if flow is None or self._origin_waits():
            return
        before = flow.moved
        try:
            progress = flow.pump()
        except OutOfPipes:
            self._serving.wait_for_pipes(self._go_on)
            return
        except OSError:
            flow.abandon()
            self._up = None
            if flow.progress is Progress.EMPTY:
                self._perform(self._session.client_lost(self._loop.now))
            elif self._origin is not None:  # it may have answered before it closed; what flows down goes on
                self._origin_broke = True
                self._origin.readable = self._origin_ended = True
                self._loop.call_soon(self._go_on)
            return
        moved = flow.moved - before
        self._serving.moved(moved, from_client=True)
        self.bytes_in += moved
        ended = progress is Progress.ENDED
        if progress is Progress.TURN:
            self._loop.call_soon(self._go_on)
        if ended or progress is Progress.COMPLETE:
            self._up = None
            self._client_readable = True  # the flow has seen the edges
            self._loop.call_soon(self._go_on)
        if moved or ended:
            self._perform(self._session.request_relayed(moved, self._loop.now, ended))

    def _end_flows(self) -> None:
        for flow in (self._up, self._down):
            if flow is not None:
                flow.abandon()
        self._up = self._down = None

    # --- commands ---

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            more = _DO[type(command)](self, command)
            if more:
                commands.extend(more)  # an answer given at once; the question is always the last of its list
        if self._session.deadline + QUANTUM < self.noted and not self._over:
            self._serving.deadlines.note(self)

    def _do_to_client(self, command: ToClient) -> None:
        self._send_client(command.data)

    def _do_to_origin(self, command: ToOrigin) -> None:
        if self._origin is not None:
            self._send_origin(command.data)

    def _do_authorize(self, command: Authorize) -> list[Command] | None:
        credentials = self._serving.credentials
        assert credentials is not None
        answers: list[list[Command]] = []
        asking = True
        question = self._question = object()

        def checked(user: str | None) -> None:
            # An answer that comes too late must not be taken for that of a later request.
            if self._over or self._question is not question or not self._session.authorizing:
                return
            self._question = None
            self._user = user or ""
            commands = self._session.authorized(user, self._loop.now)
            if asking:
                answers.append(commands)
            else:
                self._perform(commands)
                self._go_on()

        credentials.check(command.user, command.password, checked)
        asking = False
        return answers[0] if answers else None

    def _do_open(self, command: Open) -> list[Command] | None:
        target = self._target = command.target
        origin = None if command.fresh else self._serving.pool.take(target)
        if origin is not None:
            self._join(origin)
            return self._session.opened(True, self._loop.now)
        epoch = self._serving.pool.epoch
        dial = self._serving.dialer.dial(target, lambda result: self._dialled(command, result, epoch, dial.reported))
        self._dial = dial
        return None

    def _dialled(self, command: Open, result: socket.socket | Failure, epoch: int, reported: str) -> None:
        self._dial = None
        now = self._loop.now
        if isinstance(result, Failure):
            self._perform(self._session.failed(result, now))
        else:
            origin = Origin(result, (command.target.host, command.target.port), epoch, reported)
            origin.readable = True  # it may have spoken first: the edge that said so was the dial's
            self._join(origin)
            address = endpoint_of(result.getsockname()) if command.tell_address else None
            self._perform(self._session.opened(False, now, address))
        self._go_on()

    def _do_listen(self, command: Listen) -> None:
        self._target = command.target
        self._dial = Inbound(self._serving.dialer, command.target, self._own_address(), self._listening, self._came_in)

    def _listening(self, address: Endpoint) -> None:
        self._perform(self._session.opened(False, self._loop.now, address))
        self._go_on()

    def _came_in(self, result: tuple[socket.socket, Endpoint] | Failure) -> None:
        self._dial = None
        if isinstance(result, Failure):
            self._perform(self._session.failed(result, self._loop.now))
        else:
            sock, peer = result
            origin = Origin(sock, peer)
            origin.readable = True  # as above
            self._join(origin)
            self._perform(self._session.opened(False, self._loop.now, peer))
        self._go_on()

    def _do_associate(self, _command: Associate) -> list[Command]:
        try:
            self._relay = relay_socket(self._own_address())
        except OSError as error:
            self._serving.dialer.on_trouble("datagrams", f"no socket for datagrams: {error}")
            return self._session.failed(errors.out_of_descriptors(), self._loop.now)
        return self._session.opened(False, self._loop.now, endpoint_of(self._relay.getsockname()))

    def _do_relay_datagrams(self, command: RelayDatagrams) -> None:
        relay, self._relay = self._relay, None
        assert relay is not None
        assert isinstance(self._sock, socket.socket)
        self._over = True
        association = Association(
            self._serving, self._sock, self.client_ip, relay, bytes(self._out), command, self.number
        )
        self._serving.replaced(self, association)

    def _own_address(self) -> Endpoint:
        """The proxy's address of the client's connection."""
        assert isinstance(self._sock, socket.socket)
        return endpoint_of(self._sock.getsockname())

    def _join(self, origin: Origin) -> None:
        self._origin = origin
        self._origin_ended = self._origin_broke = False
        self._loop.hand_over(origin.fd, self._on_origin)

    def _do_leave_origin(self, command: LeaveOrigin) -> None:
        origin, self._origin = self._origin, None
        self._end_flows()
        if origin is None:
            return
        if command.reusable and not self._origin_ended and origin.quiet:
            self._serving.pool.give(origin)
        else:
            self._serving.pool.close(origin)

    def _do_relay_to_client(self, command: RelayToClient) -> None:
        client, origin = self._sides()
        self._down = self._serving.flow(origin, client, command.length)
        self._loop.call_soon(self._go_on)

    def _do_relay_to_origin(self, command: RelayToOrigin) -> None:
        client, origin = self._sides()
        self._up = self._serving.flow(client, origin, command.length)
        self._loop.call_soon(self._go_on)

    def _sides(self) -> tuple[Side, Side]:
        assert self._origin is not None
        return (self._sock, self._sock.fileno()), (self._origin.sock, self._origin.fd)

    def _do_tunnel(self, command: Tunnel) -> None:
        origin = self._origin
        assert origin is not None
        report = self._marked(command.report)
        self._origin = None
        self._over = True
        tunnel = RunningTunnel(self._serving, self._sock, self.client_ip, origin, bytes(self._out), report, self.number)
        self._serving.replaced(self, tunnel)

    def _do_report(self, command: Report) -> None:
        self._serving.reported(self._marked(command), self.client_ip)

    def _marked(self, report: Report) -> Report:
        """With the word of a rule that is only reported, unless the exchange has a reason of its own."""
        word = self.reported or (self._origin.reported if self._origin is not None else "")
        return report._replace(reason=word) if word and not report.reason else report

    def _do_close(self, command: CloseClient) -> None:
        if command.abort:
            self._close(abort=True)
            return
        self._closing = True
        if not self._out:
            self._finish_closing()

    # --- ends ---

    @property
    def deadline(self) -> float:
        """When it expires."""
        return float("inf") if self._over else self._session.deadline

    def expire(self) -> None:
        """The session's deadline has passed. What the kernel still delivers counts as movement."""
        waiting = unsent(self._sock.fileno())
        if waiting and waiting != self._unsent:
            self._unsent = waiting
            self._session.moved(self._loop.now)
            return
        if self._closing:
            self._close(abort=True)
            return
        now = self._loop.now
        dial = self._dial
        self._cancel_dial()
        if dial is not None and dial.resolving and self._session.opening:
            self._perform(self._session.failed(errors.dns_timed_out("the name did not resolve in time"), now))
        else:
            self._perform(self._session.timed_out(now))

    def live(self) -> Live:
        """What it is doing now; its target is that of the last request."""
        target = self._target
        where = "" if target is None else f"{target.host}:{target.port}"
        if target is not None and ":" in target.host:
            where = f"[{target.host}]:{target.port}"
        return Live(self.client_ip, self._user, where, self._state(), self.bytes_in, self.bytes_out)

    def _state(self) -> str:
        session = self._session
        if session.closed:
            return "closing"
        if session.authorizing:
            return "authorizing"
        if session.opening:
            return "connecting"
        return "idle" if session.idle else "active"

    def end(self, reason: str) -> None:
        """End it from outside; what is under way is reported with `reason`."""
        if not self._over:
            self._perform(self._session.abandon(reason, self._loop.now))

    def retire(self, patient: bool) -> None:
        """No further request on this connection; what is under way is finished.

        With `patient`, one that has not been served at all may still send its request.
        """
        self._session.last_exchange()
        self._client_readable = True
        self._go_on()  # a request that has come already is the last one
        if patient and not self._session.served:
            return
        if self._session.idle and not self._closing and not self._over:
            self._closing = True
            if not self._out:
                self._finish_closing()

    def _cancel_dial(self) -> None:
        dial, self._dial = self._dial, None
        if dial is not None:
            dial.cancel()

    def _finish_closing(self) -> None:
        """All is sent. What the client still sends is read for a moment, so that it can read our last words."""
        if self._over:
            return
        if self._client_ended:
            self._close(abort=False)
        else:
            self._let_go()
            linger(self._serving, self._sock)

    def _close(self, abort: bool) -> None:
        if self._over:
            return
        self._let_go()
        if abort:
            reset_on_close(self._sock)
        self._loop.unwatch(self._sock.fileno())
        self._sock.close()

    def _let_go(self) -> None:
        """Everything but the client's socket is given back."""
        self._over = True
        self._cancel_dial()
        if self._relay is not None:
            self._relay.close()
        self._do_leave_origin(LeaveOrigin(reusable=False))
        self._serving.ended(self)

    def __repr__(self) -> str:
        return f"<Client {self.client_ip} {self._session!r}, {len(self._out)} bytes to send>"


_DO: dict[type[Any], Callable[[Client, Any], list[Command] | None]] = {
    ToClient: Client._do_to_client,
    ToOrigin: Client._do_to_origin,
    Authorize: Client._do_authorize,
    Open: Client._do_open,
    Listen: Client._do_listen,
    Associate: Client._do_associate,
    LeaveOrigin: Client._do_leave_origin,
    RelayToClient: Client._do_relay_to_client,
    RelayToOrigin: Client._do_relay_to_origin,
    Tunnel: Client._do_tunnel,
    RelayDatagrams: Client._do_relay_datagrams,
    Report: Client._do_report,
    CloseClient: Client._do_close,
}
