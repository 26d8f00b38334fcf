"""Accepts the clients of one proxy: who may connect gets a `ClientConnection`, the others are rejected.

Several workers of a proxy share one listening socket evenly, without a message (`AcceptTurns`).

The kernel wakes one idle process for a new connection (`EPOLLEXCLUSIVE`): the one that has watched the socket for
longest, again and again. So a worker that has accepted

- watches the socket anew, which makes it the last in the kernel's order;
- leaves it to the others for a moment while it has many more connections than they. It has accepted first: the
  wake-up that it got was no other's.

If it still finds clients waiting after that moment, the others are busy or stopped: it accepts more of them each time.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from actors.bus.loop import Loop
from actors.bus.messages.common import NO_DESCRIPTORS
from actors.bus.messages.specs import ProxySpec
from actors.counters import ERRORS
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.command_handlers import HANDLERS
from actors.forwarding.connections.first_bytes import ProxyHeaderReader, TlsDetector
from actors.forwarding.context import ForwardingContext
from actors.forwarding.net.dialer import EDGE
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.error_body import Asker
from actors.forwarding.protocols.mixed import rejection_reply
from actors.forwarding.reporting import trace
from actors.net.accepting import accept, pause_accepting
from actors.net.proxy_protocol import Ends, ProxyHeader
from actors.net.transport import Transport

if TYPE_CHECKING:
    from actors.forwarding.net.tls_server import CertificateWatch
    from config.files.certificates import ClientFiles

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE: Final = 64


AT_ONCE: Final = 4
"""Connections that one worker accepts before it is another's turn."""
LEAVE: Final = 0.001
"""Seconds for which a worker leaves new clients to the others: less than it takes to serve those that it has more. With
short connections it is the other one that has more by then, and both would leave."""
ABOVE_MEAN: Final = 1.25
ABOVE_BY: Final = 4
"""A worker leaves clients to the others while it has so many times the mean of connections and so many more."""

ALONE: Final = select.EPOLLIN
SHARED: Final = select.EPOLLIN | select.EPOLLEXCLUSIVE


class AcceptTurns:
    """`most` is how many connections are accepted at once when there is no other worker.

    `mask` is what the listening socket is watched with.
    """

    def __init__(self, loop: Loop, most: int) -> None:
        self._loop = loop
        self._most = most
        self.shared = False
        """Whether there are other workers."""
        self.at_once = most
        """Connections to accept before the other workers have their turn."""

    @property
    def mask(self) -> int:
        """What the listening socket is watched with."""
        return SHARED if self.shared else ALONE

    def share(self, shared: bool) -> None:
        """There are other workers from now on, or none."""
        self.shared = shared
        self.at_once = AT_ONCE if shared else self._most

    def accepted(
        self, fd: int, watch: Callable[[], None], emptied: bool, own: int, everywhere: tuple[int, int]
    ) -> None:
        """Give the others their turn at the socket `fd`, which `watch` watches again.

        `emptied`: no client waits there any more. `own` connections are open here, `everywhere` the connections of all
        workers and the number of these.
        """
        self._loop.unwatch(fd)
        connections, workers = everywhere
        if emptied:
            self.at_once = AT_ONCE
        if workers > 1 and own > ABOVE_MEAN * connections / workers + ABOVE_BY:
            self._loop.call_later(LEAVE, lambda: self._return(watch))
        else:
            self.at_once = AT_ONCE
            watch()

    def _return(self, watch: Callable[[], None]) -> None:
        self.at_once = min(2 * self.at_once, self._most)
        watch()


class Acceptor:
    """`own_tls` are the certificate and key of the product, for `https` proxies without a pair of their own."""

    def __init__(self, context: ForwardingContext, own_tls: tuple[str, str] | None) -> None:
        self._context = context
        self._loop = context.loop
        self._own_tls = own_tls
        self._certificate: CertificateWatch | None = None
        self._detects_tls = False
        self._listeners: Sequence[tuple[socket.socket, int]] = ()
        """Each with its port."""
        self._paused = False
        self._turns = AcceptTurns(context.loop, ACCEPTED_AT_ONCE)
        self._last_ip = ""

    @property
    def listening(self) -> bool:
        """True between `listen` and `stop`."""
        return bool(self._listeners)

    @property
    def certificate_ends(self) -> float:
        """When the certificate that is served ends, in Unix seconds; 0 without one."""
        return 0.0 if self._certificate is None else self._certificate.ends

    def configure(self, spec: ProxySpec) -> None:
        """Take the certificate for TLS: the proxy's own pair of files, else the product's."""
        self._detects_tls = spec.speaks_tls and spec.protocol == "mixed"
        if not spec.speaks_tls:
            self._certificate = None
            return
        from actors.forwarding.net.tls_server import CertificateWatch  # only https proxies pay for it

        if self._certificate is None:
            self._certificate = CertificateWatch(self._loop, self._context.problems)
        self._certificate.use(spec.tls or self._own_tls, _client_files(spec))

    def share(self, shared: bool) -> None:
        """There are other workers that accept from the same sockets, or none."""
        if shared != self._turns.shared:
            self._turns.share(shared)
            for listener, port in self._listeners:
                self._watch(listener, port)

    def listen(self, listeners: Sequence[socket.socket]) -> None:
        """Accept from these sockets from now on."""
        self._listeners = [(each, each.getsockname()[1]) for each in listeners]
        for listener, port in self._listeners:
            listener.setblocking(False)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
            self._watch(listener, port)

    def stop(self) -> None:
        """Accept no more."""
        listeners, self._listeners = self._listeners, ()
        for listener, _port in listeners:
            self._loop.unwatch(listener.fileno())

    def accept_waiting(self) -> None:
        """Accept the clients that have come."""
        for listener, port in self._listeners:
            self._accept(listener, port, self._turns.at_once)

    def pause(self) -> None:
        """Leave further clients in the queue until `resume`."""
        self._paused = True
        for listener, _port in self._listeners:
            self._loop.unwatch(listener.fileno())

    def resume(self) -> None:
        """Accept again after a `pause`."""
        if self._paused:
            self._paused = False
            for listener, port in self._listeners:
                self._watch(listener, port)

    def _watch(self, listener: socket.socket, port: int) -> None:
        if self._listeners and not self._paused:
            self._loop.unwatch(listener.fileno())
            self._loop.watch(listener.fileno(), self._turns.mask, partial(self._on_ready, listener, port))

    def _on_ready(self, listener: socket.socket, port: int, _mask: int) -> None:
        turns = self._turns
        # When nothing else is ready there is one client, as a rule, and to find no second one costs more than a turn.
        alone = self._loop.ready == 1 and not turns.shared
        self._accept(listener, port, 1 if alone else turns.at_once)

    def _accept(self, listener: socket.socket, port: int, most: int) -> None:
        turns = self._turns
        for number in range(most):
            try:
                sock, address = accept(listener)
            except BlockingIOError:
                if number and turns.shared:
                    self._end_turn(listener, port, emptied=True)
                return
            except OSError as error:
                self._cannot_accept(listener, port, error)
                return
            sock.setblocking(False)
            if self._context.policy.accept_proxy_protocol:
                self._read_proxy_header(sock, address[0], port)
            else:
                self._admit(sock, address[0], port)
        if turns.shared:
            self._end_turn(listener, port, emptied=False)

    def _end_turn(self, listener: socket.socket, port: int, emptied: bool) -> None:
        context, workers = self._context, self._context.limits.workers
        everywhere = (0, 0) if workers is None else workers.open_connections()
        watch = partial(self._watch, listener, port)
        self._turns.accepted(listener.fileno(), watch, emptied, len(context.connections), everywhere)

    def _cannot_accept(self, listener: socket.socket, port: int, error: OSError) -> None:
        if pause_accepting(self._loop, listener, error, partial(self._watch, listener, port)):
            detail = "no descriptor is left for new clients: they wait in the queue"
            self._context.problems.occurred(NO_DESCRIPTORS, detail)
        else:
            log.debug("a connection ended before it was accepted: %s", error)

    # --- who may connect ---

    def _read_proxy_header(self, sock: socket.socket, peer_ip: str, port: int) -> None:
        if self._has_room(0):
            ProxyHeaderReader(self._context, sock, peer_ip, port, self._on_proxy_header)
        else:
            self._last_ip = peer_ip
            self._reject_when_full(sock, port)

    def _on_proxy_header(self, reader: ProxyHeaderReader, header: ProxyHeader) -> None:
        """The client is known. Its connection has a place already, that of the reader."""
        ends = header.ends
        client_ip = ends[0][0] if ends else reader.client_ip
        self._admit(reader.sock, client_ip, reader.listen_port, places=1, ends=ends)
        self._context.remove(reader)

    def _detect_tls(self, sock: socket.socket, port: int, ends: Ends | None) -> None:
        limits = self._context.limits
        detector = TlsDetector(
            self._context,
            sock,
            self._last_ip,
            port,
            lambda detector, found: self._on_detected(detector, found, ends),
        )
        if limits.counts_clients:
            limits.connection_opened(detector)

    def _on_detected(self, detector: TlsDetector, with_tls: bool, ends: Ends | None) -> None:
        """Whether the client has come with TLS is known. Its connection has a place already, that of the detector."""
        self._context.limits.connection_closed(detector)
        port = detector.listen_port
        self._admit(detector.sock, detector.client_ip, port, places=1, ends=ends, with_tls=with_tls)
        self._context.remove(detector)

    def _admit(
        self,
        sock: socket.socket,
        client_ip: str,
        port: int,
        places: int = 0,
        ends: Ends | None = None,
        with_tls: bool | None = None,
    ) -> None:
        """Serve the client, which has `places` among the open connections already, or reject it.

        It has come to this `port` of the proxy. `with_tls` None: that is not known yet.
        """
        context = self._context
        if client_ip != self._last_ip:
            self._last_ip = client_ip  # clients come in crowds: one text for all connections of one address
        decision = context.policy.access.client(client_ip)
        if decision.failure is not None:
            self._reject(sock, port, decision.failure)
            return
        refusal = context.limits.client_refusal(client_ip) if context.limits.counts_clients else None
        if refusal is not None and not context.limits.refuses_in_protocol(client_ip):
            self._reject(sock, port, refusal)
            return
        if not self._has_room(places):
            self._reject_when_full(sock, port)
            return
        if self._detects_tls and with_tls is None:
            self._detect_tls(sock, port, ends)
            return
        transport = sock if with_tls is False else self._transport(sock)
        if transport is None:
            sock.close()
            return
        client = ClientConnection(context, transport, self._last_ip, port, HANDLERS)
        client.reported = decision.reported
        client.proxy_addresses = ends
        if client.meter is not None:
            client.meter.refusal = refusal
        context.add(client)
        self._loop.watch(client.fileno, EDGE, client.on_client)
        if not self._listeners:
            client.stop_keep_alive(allow_first_request=True)  # its header came while the actor is draining

    def _has_room(self, places: int) -> bool:
        """Whether one more may be open; the client has `places` already."""
        context, workers = self._context, self._context.limits.workers
        own = len(context.connections)
        count = own if workers is None else workers.open_connections().connections
        return count - places < context.policy.max_connections

    def _transport(self, sock: socket.socket) -> Transport | None:
        """The connection as the protocol wants it; None when it wants TLS and there is no certificate."""
        if self._certificate is None:
            return sock
        context = self._certificate.context()
        if context is None:
            return None
        from actors.net.tls_stream import TlsStream  # only https proxies pay for it

        return TlsStream(sock, context)

    # --- who may not ---

    def _reject_when_full(self, sock: socket.socket, port: int) -> None:
        self._context.stats.values[ERRORS] += 1
        self._reject(sock, port, failures.out_of_connections(self._context.policy.max_connections))

    def _reject(self, sock: socket.socket, port: int, failure: Failure) -> None:
        """Close the connection, with a reply where the protocol has one before a request. It gets a record."""
        context = self._context
        if context.debug:
            trace.log.debug("client %s rejected: %s", self._last_ip, failure.detail)
        session = context.policy.session
        asker = Asker(session.new_id(), session.contact)
        context.stats.client_rejected(self._last_ip, port, failure, asker.request_id)
        if self._certificate is not None:
            sock.close()  # a handshake only to say no would cost more than the connection
            return
        self._loop.watch(sock.fileno(), EDGE, lambda _mask: None)
        try:
            sock.send(rejection_reply(context.policy.protocol, failure, session.date(self._loop.now), asker))
        except OSError as error:
            log.debug("a rejected client has gone: %s", error)
        context.lingering.close(sock, self._last_ip)


def _client_files(spec: ProxySpec) -> ClientFiles | None:
    """What clients' certificates are verified by; None where clients are not asked for one."""
    if spec.client_tls is None:
        return None
    from config.files.certificates import ClientFiles  # only https proxies pay for it

    return ClientFiles(spec.client_tls.ca, spec.client_tls.crl, spec.client_tls.required)
