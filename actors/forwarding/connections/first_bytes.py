"""The first bytes of a connection, peeked at (`MSG_PEEK`) before its client connection exists.

What is peeked at may be consumed; all else is read by the client connection later, as if it came only then. Until then
the reader counts among the open connections.

Reads the PROXY protocol header with which a balancer begins a connection. The header comes before everything else, TLS
included. It is consumed to the octet: what is behind it is read by the client connection, as if it had come from the
client itself.
"""

from __future__ import annotations

import logging
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable

from actors.forwarding.context import ForwardingContext
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import Meter
from actors.forwarding.net.dialer import EDGE
from actors.forwarding.net.timer_wheel import NEVER
from actors.forwarding.open_connections import ConnectionInfo
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.net.proxy_protocol import HEADER_MAX, BadHeader, ProxyHeader, read_header

log = logging.getLogger(__name__)

HANDSHAKE_RECORD = 0x16


class FirstBytes(ABC):
    """Waits for them. `sock` is not watched any more when `_pass_on` was called, and belongs to what comes next.

    `client_ip` is that of the peer; the client's may turn out to be another. `listen_port` is the one that it came to.
    """

    meter: Meter | None = None  # first bytes are billed to no account

    __slots__ = ("_context", "client_ip", "deadline", "listen_port", "number", "scheduled_for", "sock")

    _size: int
    _state: str

    def __init__(self, context: ForwardingContext, sock: socket.socket, client_ip: str, listen_port: int) -> None:
        self._context = context
        self.sock = sock
        self.client_ip = client_ip
        self.listen_port = listen_port
        self.number = context.new_number()
        self.deadline = context.loop.now + context.policy.session.handshake_timeout
        self.scheduled_for = NEVER
        context.connections[self] = None
        if context.limits.workers is not None:
            context.limits.workers.set_open(len(context.connections))
        context.timers.schedule(self)
        context.loop.watch(sock.fileno(), EDGE, self._peek)

    @abstractmethod
    def _on_bytes(self, data: bytes, mask: int) -> None:
        """These have come so far; `mask` has the events of the socket."""

    def _on_timeout(self) -> None:
        """They did not come in time."""
        self.end("")

    def _pass_on(self, consumed: int) -> None:
        """Consume so many bytes, and leave the connection to what comes next."""
        self.deadline = NEVER
        if consumed:
            self.sock.recv(consumed)
        self._context.loop.unwatch(self.sock.fileno())

    @isolated
    def _peek(self, mask: int) -> None:
        try:
            data = self.sock.recv(self._size, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_bytes(data, mask)
        else:
            self.end("")  # nothing was sent: balancers check so whether the proxy listens

    # --- for `OpenConnection` ---

    def measure(self, _meter: Meter) -> None:
        """See `OpenConnection`: the connection gets a meter of its own when it begins."""
        return

    def destinations_changed(self) -> None:
        """See `MeteredConnection`: it has no account yet."""
        return

    def policies_changed(self) -> None:
        """See `OpenConnection`: it has no request yet."""
        return

    @isolated
    def expire(self) -> None:
        """See `OpenConnection`."""
        self._on_timeout()

    def info(self) -> ConnectionInfo:
        """Of no user yet, and its client is still the peer."""
        return ConnectionInfo(self.client_ip, "", "", self._state, 0, 0, listen_port=self.listen_port)

    def end(self, _reason: str) -> None:
        """Close it, once. There was no exchange to report."""
        if self.deadline == NEVER:
            return
        self.drop()
        self._context.remove(self)

    def crashed(self, error: Exception) -> None:
        """See `isolation`."""
        self._context.crashed(self, error)

    def drop(self) -> None:
        """See `OpenConnection`."""
        self.deadline = NEVER
        self._context.loop.unwatch(self.sock.fileno())
        self.sock.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self.client_ip}>"


class TlsDetector(FirstBytes):
    """Whether a client of `mixed` comes with TLS: its first byte is that of a handshake record (RFC 8446 section 5.1).

    `on_detected` is called once, with this and the answer.
    """

    __slots__ = ("_on_detected",)

    _size = 1
    _state = "idle"

    def __init__(
        self,
        context: ForwardingContext,
        sock: socket.socket,
        client_ip: str,
        listen_port: int,
        on_detected: Callable[[TlsDetector, bool], None],
    ) -> None:
        self._on_detected = on_detected
        super().__init__(context, sock, client_ip, listen_port)

    def _on_bytes(self, data: bytes, _mask: int) -> None:
        self._pass_on(0)
        self._on_detected(self, data[0] == HANDSHAKE_RECORD)


_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class ProxyHeaderReader(FirstBytes):
    """Waits for one header. `on_header` is called once, with this and the header, when it has come.

    The callback also removes this from the open connections. The client's address may be that of the peer, where the
    header has none.
    """

    __slots__ = ("_on_header",)

    _size = HEADER_MAX
    _state = "announcing"

    def __init__(
        self,
        context: ForwardingContext,
        sock: socket.socket,
        client_ip: str,
        listen_port: int,
        on_header: Callable[[ProxyHeaderReader, ProxyHeader], None],
    ) -> None:
        self._on_header = on_header
        super().__init__(context, sock, client_ip, listen_port)

    def _on_bytes(self, data: bytes, mask: int) -> None:
        """Parse as much of the header as has come."""
        try:
            header = read_header(data)
            if header is None and mask & _ENDED:
                raise BadHeader("the connection ends within it")
        except BadHeader as error:
            self._refuse(failures.bad_proxy_header(f"no header of the PROXY protocol: {error}"))
            return
        if header is not None:
            self._pass_on(header.size)
            self._on_header(self, header)

    def _on_timeout(self) -> None:
        self._refuse(failures.PROXY_HEADER_TIMED_OUT)

    def _refuse(self, failure: Failure) -> None:
        log.debug("a connection from %s is closed: %s", self.client_ip, failure.detail)
        self._context.stats.client_rejected(self.client_ip, self.listen_port, failure)
        self.end(failure.reason)
