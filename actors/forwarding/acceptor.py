"""Accepts the clients of one proxy: who may connect gets a `ClientConnection`, the others are rejected."""

from __future__ import annotations

import logging
import select
import socket
from typing import TYPE_CHECKING

from actors.bus.messages.problems import NO_DESCRIPTORS
from actors.bus.messages.specs import ProxySpec
from actors.counters import ERRORS
from actors.forwarding.connections.client_connection import ClientConnection
from actors.forwarding.connections.command_handlers import HANDLERS
from actors.forwarding.connections.first_bytes import TlsDetector
from actors.forwarding.connections.proxy_header_reader import ProxyHeaderReader
from actors.forwarding.context import ForwardingContext
from actors.forwarding.net.dialer import EDGE
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.registry import rejection_reply
from actors.forwarding.reporting import trace
from actors.net.descriptor_exhaustion import ACCEPT_PAUSE, OUT_OF_DESCRIPTORS
from actors.net.proxy_protocol import Ends, Header
from actors.net.transport import Transport

if TYPE_CHECKING:
    from actors.forwarding.net.certificate_watch import CertificateWatch
    from config.files.client_certificates import ClientFiles

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE = 64


class Acceptor:
    """`own_tls` are the certificate and key of the product, for `https` proxies without a pair of their own."""

    def __init__(self, context: ForwardingContext, own_tls: tuple[str, str] | None) -> None:
        self._context = context
        self._loop = context.loop
        self._own_tls = own_tls
        self._certificate: CertificateWatch | None = None
        self._detects_tls = False
        self._listener: socket.socket | None = None
        self._last_ip = ""

    @property
    def listening(self) -> bool:
        """True between `listen` and `stop`."""
        return self._listener is not None

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
        from actors.forwarding.net.certificate_watch import CertificateWatch  # only https proxies pay for it

        if self._certificate is None:
            self._certificate = CertificateWatch(self._loop, self._context.problems)
        self._certificate.use(spec.tls or self._own_tls, _client_files(spec))

    def listen(self, listener: socket.socket) -> None:
        """Accept from this socket from now on."""
        listener.setblocking(False)
        if listener.family in (socket.AF_INET, socket.AF_INET6):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
        self._listener = listener
        self._watch()

    def stop(self) -> None:
        """Accept no more."""
        if self._listener is not None:
            self._loop.unwatch(self._listener.fileno())
            self._listener = None

    def _watch(self) -> None:
        if self._listener is not None:
            self._loop.watch(self._listener.fileno(), select.EPOLLIN, self._accept)

    def _accept(self, _mask: int) -> None:
        listener = self._listener
        if listener is None:
            return
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._cannot_accept(listener, error)
                return
            sock.setblocking(False)
            if self._context.policy.accept_proxy_protocol:
                self._read_proxy_header(sock, address[0])
            else:
                self._admit(sock, address[0])

    def _cannot_accept(self, listener: socket.socket, error: OSError) -> None:
        if error.errno not in OUT_OF_DESCRIPTORS:
            log.debug("a connection ended before it was accepted: %s", error)
            return
        detail = "no descriptor is left for new clients: they wait in the queue"
        self._context.problems.occurred(NO_DESCRIPTORS, detail)
        self._loop.unwatch(listener.fileno())
        self._loop.call_later(ACCEPT_PAUSE, self._watch)

    # --- who may connect ---

    def _read_proxy_header(self, sock: socket.socket, peer_ip: str) -> None:
        if len(self._context.connections) < self._context.policy.max_connections:
            ProxyHeaderReader(self._context, sock, peer_ip, self._on_proxy_header)
        else:
            self._last_ip = peer_ip
            self._reject_when_full(sock)

    def _on_proxy_header(self, reader: ProxyHeaderReader, header: Header) -> None:
        """The client is known. Its connection has a place already, that of the reader."""
        ends = header.ends
        self._admit(reader.sock, ends[0][0] if ends else reader.client_ip, places=1, ends=ends)
        self._context.remove(reader)

    def _detect_tls(self, sock: socket.socket, ends: Ends | None) -> None:
        limits = self._context.limits
        detector = TlsDetector(
            self._context, sock, self._last_ip, lambda detector, found: self._on_detected(detector, found, ends)
        )
        if limits.counts_clients:
            limits.connection_opened(detector)

    def _on_detected(self, detector: TlsDetector, with_tls: bool, ends: Ends | None) -> None:
        """Whether the client has come with TLS is known. Its connection has a place already, that of the detector."""
        self._context.limits.connection_closed(detector)
        self._admit(detector.sock, detector.client_ip, places=1, ends=ends, with_tls=with_tls)
        self._context.remove(detector)

    def _admit(
        self,
        sock: socket.socket,
        client_ip: str,
        places: int = 0,
        ends: Ends | None = None,
        with_tls: bool | None = None,
    ) -> None:
        """Serve the client, which has `places` among the open connections already, or reject it.

        `with_tls` None: that is not known yet.
        """
        context = self._context
        if client_ip != self._last_ip:
            self._last_ip = client_ip  # clients come in crowds: one text for all connections of one address
        decision = context.policy.access.client(client_ip)
        if decision.failure is not None:
            self._reject(sock, decision.failure)
            return
        refusal = context.limits.client_refusal(client_ip) if context.limits.counts_clients else None
        if refusal is not None and not context.limits.refuses_in_protocol(client_ip):
            self._reject(sock, refusal)
            return
        if len(context.connections) - places >= context.policy.max_connections:
            self._reject_when_full(sock)
            return
        if self._detects_tls and with_tls is None:
            self._detect_tls(sock, ends)
            return
        transport = sock if with_tls is False else self._transport(sock)
        if transport is None:
            sock.close()
            return
        client = ClientConnection(context, transport, self._last_ip, HANDLERS)
        client.report_only_reason = decision.reason
        client.proxy_addresses = ends
        if client.meter is not None:
            client.meter.refusal = refusal
        context.add(client)
        self._loop.watch(client.fileno, EDGE, client.on_client)
        if self._listener is None:
            client.stop_keep_alive(allow_first_request=True)  # its header came while the actor is draining

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

    def _reject_when_full(self, sock: socket.socket) -> None:
        self._context.stats.values[ERRORS] += 1
        self._reject(sock, failures.out_of_connections(self._context.policy.max_connections))

    def _reject(self, sock: socket.socket, failure: Failure) -> None:
        """Close the connection, with a reply where the protocol has one before a request. It gets a record."""
        context = self._context
        if context.debug:
            trace.log.debug("client %s rejected: %s", self._last_ip, failure.detail)
        context.stats.client_rejected(self._last_ip, failure)
        if self._certificate is not None:
            sock.close()  # a handshake only to say no would cost more than the connection
            return
        self._loop.watch(sock.fileno(), EDGE, lambda _mask: None)
        policy = context.policy
        try:
            sock.send(rejection_reply(policy.protocol, failure, policy.session.date(self._loop.now)))
        except OSError as error:
            log.debug("a rejected client has gone: %s", error)
        context.lingering.close(sock, self._last_ip)


def _client_files(spec: ProxySpec) -> ClientFiles | None:
    """What clients' certificates are verified by; None where clients are not asked for one."""
    if spec.client_tls is None:
        return None
    from config.files.client_certificates import ClientFiles  # only https proxies pay for it

    return ClientFiles(spec.client_tls.ca, spec.client_tls.crl, spec.client_tls.required)
