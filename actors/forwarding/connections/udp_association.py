"""A UDP association (RFC 1928 section 7): datagrams between one client and its peers.

The client's datagrams come to a socket at the address of its control connection, and leave from another socket, one
for each address family. The association belongs to the client's address, which may be of a PROXY header, and to
the port that the request named, else the first that is seen. Datagrams are passed back only from peers that were sent
to. It ends with the control connection, or when nothing has moved for `settings.timeout`.

Datagrams are dropped, as on any network, when they can't be sent on at once. What is remembered is bounded: the peers,
and the datagrams that wait for a name.
"""

from __future__ import annotations

import select
import socket
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from actors.counters import BYTES_IN, BYTES_OUT
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.tls_name_gate import unchecked_datagram
from actors.forwarding.connections.udp_targets import DatagramSockets, Share, Targets, WaitingDatagram, WaitingDatagrams
from actors.forwarding.decision import Subject, refused_by_own_now, refused_by_policies_now
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import Meter, account_of
from actors.forwarding.limits.token_bucket import Throttle
from actors.forwarding.net.resolver import Resolution, Resolved
from actors.forwarding.net.source_address import SourceAddress
from actors.forwarding.net.timer_wheel import NEVER
from actors.forwarding.open_connections import ConnectionInfo
from actors.forwarding.protocols.commands import RelayDatagrams
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.forwarding.protocols.socks.replies import pack_datagram_head, read_datagram
from actors.net.socks_wire import Endpoint, endpoint_of
from actors.net.transport import Transport

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Judge

DATAGRAM_MAX = 65535
AT_ONCE = 64
"""Datagrams read from one socket before others get their turn."""
PEERS_MAX = 256
"""Peers whose datagrams are passed back; the one that was sent to longest ago makes room."""


class UdpAssociation:
    """Takes over the client's connection and the relay socket; reports its end to `context.tunnel_ended`."""

    __slots__ = (
        "_bytes_in",
        "_bytes_out",
        "_client",
        "_client_port",
        "_context",
        "_control",
        "_origins",
        "_out",
        "_paused",
        "_peers",
        "_relay",
        "_report",
        "_requested",
        "_targets",
        "_waiting",
        "client_ip",
        "deadline",
        "listen_port",
        "meter",
        "number",
        "scheduled_for",
    )

    def __init__(self, client: ClientConnection, relay: socket.socket, command: RelayDatagrams) -> None:
        context, client_ip = client.context, client.client_ip
        control: Transport = client.sock
        self._context = context
        self._control = control
        self._relay = relay
        self._out = bytes(client.send_buffer)
        self._report = command.report
        self._requested = client.request.identity.requested(client_ip)
        self.client_ip = client_ip
        self.listen_port = client.listen_port
        self.number = client.number
        self.meter: Meter | None = client.meter
        self._paused: list[socket.socket] = []
        self._client = endpoint_of((client_ip, 0))[0]
        self._client_port = _named_port(command.client, self._client)
        self._origins = DatagramSockets(self._watch, context.loop.unwatch)
        self._peers: OrderedDict[Endpoint, tuple[Share, Authority]] = OrderedDict()
        self._waiting = WaitingDatagrams()
        self._targets = Targets()
        self._bytes_in = 0
        self._bytes_out = 0
        self.scheduled_for = NEVER
        self.deadline = 0.0
        self._postpone_expiry()
        context.loop.set_handler(control.fileno(), self._on_control)
        self._watch(relay)
        context.timers.schedule(self)
        context.loop.call_soon(self._read_control)  # what came before the hand-over causes no event any more

    def info(self) -> ConnectionInfo:
        """What it is doing now."""
        report = self._report
        target = str(self._targets) or report.url
        return ConnectionInfo(
            self.client_ip,
            report.user,
            target,
            "datagrams",
            report.bytes_in + self._bytes_in,
            report.bytes_out + self._bytes_out,
            credential=report.credential,
            source_address=self._targets.left_from,
            source_rule=self._origins.rule,
            parameters=report.parameters,
            listen_port=self.listen_port,
        )

    # --- the control connection ---

    @isolated
    def _on_control(self, _mask: int) -> None:
        self._read_control()

    @isolated
    def _read_control(self) -> None:
        """Await its end; what comes before is discarded."""
        if self._closed:
            return
        try:
            if self._out:
                self._out = self._out[self._control.send(self._out) :]
            for _ in range(AT_ONCE):
                if not self._control.recv(16 * 1024):
                    self.end("")
                    return
        except BlockingIOError:
            return
        except OSError:
            self.end("connection_terminated")
            return
        self._context.loop.call_soon(self._read_control)

    @property
    def _closed(self) -> bool:
        return self.deadline == NEVER

    @property
    def waits(self) -> bool:
        """See `Requester`."""
        return not self._closed

    def _postpone_expiry(self) -> None:
        self.deadline = self._context.loop.now + self._context.policy.session.timeout

    # --- from the client ---

    @isolated
    def _on_client(self, _mask: int) -> None:
        throttle = None if self.meter is None else self.meter.inward
        for _ in range(AT_ONCE):
            if throttle is not None and not throttle.available():
                self._pause(self._relay, throttle)
                return
            try:
                data, address = self._relay.recvfrom(DATAGRAM_MAX)
            except OSError:
                return  # nothing more is there
            host, port = endpoint_of(address)
            if host == self._client and self._client_port in (0, port):
                self._client_port = port
                self._from_client(data)

    def _from_client(self, data: bytes) -> None:
        self._bytes_in += len(data)
        if self.meter is not None:
            self.meter.inward.consume(len(data))
        self._context.stats.values[BYTES_IN] += len(data)
        datagram = read_datagram(data)
        if datagram is None:
            return
        target, payload = datagram.target, data[datagram.start :]
        share = self._targets.share(target.text)
        share.bytes_in += len(data)
        resolver = self._context.dialer.resolver
        result = Resolved((target.host,)) if target.literal else resolver.known(target.host)
        if result is not None:
            self._forward(WaitingDatagram(target, payload, share), result)
        elif self._waiting.add(WaitingDatagram(target, payload, share)):
            resolver.resolve(target.host, partial(self._resolved, target.host), self)

    @isolated
    def _resolved(self, name: str, result: Resolution) -> None:
        for datagram in self._waiting.pop(name):
            self._forward(datagram, result)

    def _forward(self, datagram: WaitingDatagram, result: Resolution) -> None:
        """Send it to the addresses of its target, if there are any."""
        if isinstance(result, Failure):
            datagram.share.failure = result
        elif not self._closed:
            self._send(result.addresses, *datagram)

    def _send(self, addresses: tuple[str, ...], target: Authority, payload: bytes, share: Share) -> None:
        """To the first address that may be sent to."""
        context, judge = self._context, None
        own = context.own_rules(self.meter)  # first, since it brings the account up to date
        if context.judges(account_of(self.meter)):
            judge = self._subject.judge_directly(context, target)
        access = context.policy.access.for_request(own, judge)
        by_name = access.name(target)
        refused = by_name.failure if by_name is not None else None
        for address in () if refused else addresses:
            source = self._source(address, judge)
            refused = access.address(target, address).failure or source.refuses(address)
            verdict = None if judge is None else judge.by_address(address)
            refused = refused or unchecked_datagram(self._context, target, own, verdict)
            if refused is None:
                self._send_to((address, target.port), target, payload, share, source)
                return
        share.failure = refused or share.failure

    @property
    def _subject(self) -> Subject:
        report = self._report
        return Subject(self.client_ip, self.listen_port, report.user, account_of(self.meter), report.params)

    def _source(self, address: str, judge: Judge | None) -> SourceAddress:
        """Where datagrams to an address leave from: chosen once for all that one entry of the configuration decides."""
        context, account = self._context, account_of(self.meter)
        if judge is None and account is None and not context.sources.entries:
            return context.dialer.source
        stated = context.sources.stated(None if judge is None else judge.by_address(address), account)
        if not stated.entries:
            return context.dialer.source
        return self._origins.chosen(stated, lambda: context.sources.source(stated, self._requested, account))

    def _send_to(self, peer: Endpoint, target: Authority, payload: bytes, share: Share, source: SourceAddress) -> None:
        try:
            self._origins.towards(peer[0], source).sendto(payload, peer)
        except OSError:
            return  # no way there, too large, or the kernel is busy: a datagram is lost
        share.left_from = source.towards(peer[0])
        self._postpone_expiry()
        peers = self._peers
        known = endpoint_of(peer)
        peers[known] = share, target
        share.reached = True
        peers.move_to_end(known)
        if len(peers) > PEERS_MAX:
            peers.popitem(last=False)

    # --- to the client ---

    @isolated
    def _on_peer(self, sock: socket.socket, _mask: int) -> None:
        throttle = None if self.meter is None else self.meter.outward
        for _ in range(AT_ONCE):
            if throttle is not None and not throttle.available():
                self._pause(sock, throttle)
                return
            try:
                data, address = sock.recvfrom(DATAGRAM_MAX)
            except OSError:
                return  # nothing more is there
            source = endpoint_of(address)
            peer = self._peers.get(source)
            if peer is not None:
                self._to_client(pack_datagram_head(source) + data, peer[0])

    def _to_client(self, datagram: bytes, share: Share) -> None:
        try:
            self._relay.sendto(datagram, (self._client, self._client_port))
        except OSError:
            return  # the datagram is lost
        self._postpone_expiry()
        self._bytes_out += len(datagram)
        share.bytes_out += len(datagram)
        if self.meter is not None:
            self.meter.outward.consume(len(datagram))
        self._context.stats.values[BYTES_OUT] += len(datagram)

    # --- limits: what isn't read waits in the kernel, and what it has no room for is lost, as on any network ---

    def _watch(self, sock: socket.socket) -> None:
        handler = self._on_client if sock is self._relay else partial(self._on_peer, sock)
        self._context.loop.watch(sock.fileno(), select.EPOLLIN, handler)

    def _pause(self, sock: socket.socket, throttle: Throttle) -> None:
        self._context.loop.unwatch(sock.fileno())
        self._paused.append(sock)
        throttle.wait(self._resume)

    @isolated
    def _resume(self) -> None:
        """Read again from all that were paused; those without a share pause again."""
        paused, self._paused = self._paused, []
        for sock in () if self._closed else paused:
            self._watch(sock)

    def measure(self, meter: Meter) -> None:
        """See `OpenConnection`."""
        self.meter = meter
        meter.holder = self

    @isolated
    def destinations_changed(self) -> None:
        """See `MeteredConnection`: all of it ends, since a peer that it has may no longer be one."""
        own = self._context.own_rules(self.meter)
        for (address, _port), (_share, target) in self._peers.items() if own and not self._closed else ():
            if self._ended_because(refused_by_own_now(own, target, address)):
                return

    @isolated
    def policies_changed(self) -> None:
        """See `OpenConnection`: as when the account's destinations have changed."""
        subject = self._subject
        for (address, _port), (_share, target) in () if self._closed else tuple(self._peers.items()):
            failure = refused_by_policies_now(self._context, subject, target, self._report, address)
            if self._ended_because(failure):
                return

    def _ended_because(self, failure: Failure | None) -> bool:
        if failure is None:
            return False
        self._report.because(failure)
        self.end(failure.reason)
        return True

    # --- ends ---

    def crashed(self, error: Exception) -> None:
        """See `isolation`."""
        self._context.crashed(self, error)

    def drop(self) -> None:
        """See `OpenConnection`."""
        self.deadline = NEVER
        for sock in (self._control, self._relay):
            self._context.loop.unwatch(sock.fileno())
            sock.close()
        self._origins.close()

    @isolated
    def expire(self) -> None:
        """Nothing has moved for too long."""
        if self.meter is not None and self.meter.waiting:
            self._postpone_expiry()  # a limit of ours holds it up
            return
        self.end("connection_read_timeout")

    def end(self, reason: str) -> None:
        """Close everything, once. Refused targets are reported as refusals."""
        if self._closed:
            return
        self.drop()
        whole = self._report
        whole.reason = reason
        whole.bytes_in += self._bytes_in
        whole.bytes_out += self._bytes_out
        first, *others = self._targets.reports(whole)
        for report in others:
            self._context.stats.further_record(report, self.client_ip, self.listen_port)
        self._context.tunnel_ended(self, first)

    def __repr__(self) -> str:
        return f"<UdpAssociation of {self._client} port {self._client_port}, {len(self._peers)} peers>"


def _named_port(named: Authority, client: str) -> int:
    """The port that the client must send from; 0 for any.

    A client that names another address than the one it comes from is behind a translator, which changes ports too.
    """
    host = endpoint_of((named.host, 0))[0]
    return named.port if named.literal and host in (client, "0.0.0.0", "::") else 0  # noqa: S104
