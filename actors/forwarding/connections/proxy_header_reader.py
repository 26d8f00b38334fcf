"""Reads the PROXY protocol header with which a balancer begins a connection.

The header comes before everything else, TLS included. It is consumed to the octet: what is behind it is read by the
client connection, as if it had come from the client itself.
"""

from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable

from actors.forwarding.connections.first_bytes import FirstBytes
from actors.forwarding.context import ForwardingContext
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.net.proxy_protocol import HEADER_MAX, BadHeader, Header, read_header

log = logging.getLogger(__name__)

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
        on_header: Callable[[ProxyHeaderReader, Header], None],
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
