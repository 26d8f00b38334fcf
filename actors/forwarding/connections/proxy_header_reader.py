"""Reads the PROXY protocol header with which a balancer begins a connection.

The header comes before everything else, TLS included. It is peeked at (`MSG_PEEK`) until all of it has come, and then
consumed to the octet: what is behind it is read by the client connection, as if it had come from the client itself.
Until then the reader counts among the open connections.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable

from actors.forwarding.connection import ConnectionInfo
from actors.forwarding.context import ForwardingContext
from actors.forwarding.isolation import isolated
from actors.forwarding.limits.meter import Meter
from actors.forwarding.net.dialer import EDGE
from actors.forwarding.net.timer_wheel import NEVER
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.session_config import SessionConfig
from actors.net.proxy_protocol import HEADER_MAX, BadHeader, Header, read_header

log = logging.getLogger(__name__)

_ENDED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class ProxyHeaderReader:
    """Waits for one header. `on_header` is called once, with this and the header, when it has come.

    `sock` is then not watched and belongs to the callback, which also removes this from the open connections.
    `client_ip` is that of the peer at first; the client's may be the same, where the header has none.
    """

    meter: Meter | None = None  # a header is billed to no account

    __slots__ = ("_context", "_on_header", "client_ip", "deadline", "number", "scheduled_for", "sock")

    def __init__(
        self,
        context: ForwardingContext,
        sock: socket.socket,
        client_ip: str,
        on_header: Callable[[ProxyHeaderReader, Header], None],
    ) -> None:
        self._context = context
        self._on_header = on_header
        self.sock = sock
        self.client_ip = client_ip
        self.number = context.new_number()
        self.deadline = context.loop.now + context.policy.session.handshake_timeout
        self.scheduled_for = NEVER
        context.connections.add(self)
        context.timers.schedule(self)
        context.loop.watch(sock.fileno(), EDGE, self._peek)

    def reconfigure(self, policy: SessionConfig) -> None:
        """See `Connection`: its session begins later, with the configuration of then."""

    def measure(self, meter: Meter) -> None:
        """See `Connection`: the connection gets a meter of its own when it begins."""

    def destinations_changed(self) -> None:
        """See `MeteredConnection`: it has no account yet."""

    @isolated
    def _peek(self, mask: int) -> None:
        """Parse as much of the header as has come."""
        try:
            data = self.sock.recv(HEADER_MAX, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.end("")  # nothing was sent: balancers check so whether the proxy listens
            return
        try:
            header = read_header(data)
            if header is None and mask & _ENDED:
                raise BadHeader("the connection ends within it")
        except BadHeader as error:
            self._refuse(failures.bad_proxy_header(f"no header of the PROXY protocol: {error}"))
            return
        if header is not None:
            self._consume(header)

    def _consume(self, header: Header) -> None:
        self.deadline = NEVER
        self.sock.recv(header.size)
        self._context.loop.unwatch(self.sock.fileno())
        self._on_header(self, header)

    def _refuse(self, failure: Failure) -> None:
        log.debug("a connection from %s is closed: %s", self.client_ip, failure.detail)
        self._context.stats.client_rejected(self.client_ip, failure)
        self.end(failure.reason)

    @isolated
    def expire(self) -> None:
        """The header did not come in time."""
        self._refuse(failures.PROXY_HEADER_TIMED_OUT)

    def info(self) -> ConnectionInfo:
        """Of no user yet, and its client is still the peer."""
        return ConnectionInfo(self.client_ip, "", "", "announcing", 0, 0)

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
        """See `Connection`."""
        self.deadline = NEVER
        self._context.loop.unwatch(self.sock.fileno())
        self.sock.close()

    def __repr__(self) -> str:
        return f"<ProxyHeaderReader for {self.client_ip}>"
