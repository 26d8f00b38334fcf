"""Accepts one connection for a client: BIND of SOCKS (RFC 1928 section 6).

Listens at an address of this machine for one connection from a named peer. Connections of other peers are closed, and
it keeps listening; with the unspecified address any peer is accepted that the egress guard allows. The deadline is the
caller's, who calls `cancel`.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from actors.forwarding.access.rules import OwnRules
from actors.forwarding.isolation import OURSELVES, Requester
from actors.forwarding.net.dialer import EDGE, Dialer, decide_addresses
from actors.forwarding.net.resolver import Resolution
from actors.forwarding.net.source_address import SourceAddress
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.net.socks_wire import Endpoint, endpoint_of

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Judge

OnListening = Callable[[Endpoint], None]
OnAccepted = Callable[[tuple[socket.socket, Endpoint] | Failure], None]

_UNSPECIFIED = frozenset(("0.0.0.0", "::"))  # noqa: S104 - compared, not bound
_ACCEPTED_AT_ONCE = 16


class BindListener:
    """Waits for one peer. `on_accepted` is called once, later, unless it is cancelled before; its socket is watched
    (`EDGE`).

    `control` is the proxy's address of the client's connection.
    """

    def __init__(
        self,
        dialer: Dialer,
        peer: Authority,
        control: Endpoint,
        on_listening: OnListening,
        on_accepted: OnAccepted,
        requester: Requester = OURSELVES,
        own: OwnRules = (),
        judge: Judge | None = None,
        source: SourceAddress | None = None,
    ) -> None:
        """`own` rules of an account hold for the peer as well, and policies, if there are any (`judge`). `source`: the
        address to listen at, if not the one that all connections leave from."""
        self._judge = judge
        self._source = dialer.source if source is None else source
        self._dialer = dialer
        self._own = own
        self._loop = dialer.loop
        self._peer = peer
        self._control = control
        self._on_listening = on_listening
        self._on_accepted: OnAccepted | None = on_accepted
        self._listener: socket.socket | None = None
        self._expected: frozenset[str] | None = None
        self._resolving = dialer.resolve_later(peer, self._on_resolved, requester, own, judge)

    @property
    def overdue(self) -> Failure | None:
        """See `PendingOrigin`."""
        return self._dialer.resolver.overdue(self._peer.host) if self._resolving else None

    def cancel(self) -> None:
        """Stop listening, without calling `on_accepted`."""
        self._on_accepted = None
        self._close()

    def _on_resolved(self, result: Resolution) -> None:
        self._resolving = False
        if isinstance(result, Failure):
            self._end(result)
        else:
            self._listen_for(result.addresses)

    def _listen_for(self, addresses: tuple[str, ...]) -> None:
        """Listen for a peer at those of the addresses that are allowed."""
        if self._on_accepted is None:
            return
        if addresses[0] in _UNSPECIFIED:
            self._listen(addresses[0])
            return
        access = self._dialer.access.for_request(self._own, self._judge)
        found = decide_addresses(access, self._peer, addresses, self._source)
        failure = found.outcome(self._source).failure
        if failure is not None:
            self._end(failure)
            return
        self._expected = frozenset(found.usable)
        self._listen(found.usable[0])

    def _may_connect(self, address: str) -> bool:
        access = self._dialer.access.for_request(self._own, self._judge)
        return access.address(self._peer, address).failure is None

    def _listen(self, towards: str) -> None:
        family = socket.AF_INET6 if ":" in towards else socket.AF_INET
        try:
            host = self._own_address(family, towards)
            listener = _listening_socket(host, family, self._source)
        except OSError as error:
            self._end(failures.unroutable(f"no address to listen at for {towards}: {error.strerror}"))
            return
        listener.setblocking(False)
        self._listener = listener
        self._loop.watch(listener.fileno(), select.EPOLLIN, self._accept)
        self._on_listening(endpoint_of(listener.getsockname()))

    def _own_address(self, family: socket.AddressFamily, towards: str) -> str:
        """Where the peer reaches us: the address that connections leave from, else the source address on the way to it,
        else that of the client's connection.
        """
        source = self._source.towards(towards)
        if source:
            return source
        if towards not in _UNSPECIFIED:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:  # nothing is sent by asking
                probe.connect((towards, self._peer.port or 9))
                return str(probe.getsockname()[0])
        control = self._control[0]
        return control if (":" in control) == (family is socket.AF_INET6) else towards

    def _accept(self, _mask: int) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if self._listener is None:
                return
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._end(failures.connection_lost(f"no connection could be taken: {error.strerror}"))
                return
            self._accept_peer(sock, endpoint_of(address))

    def _accept_peer(self, sock: socket.socket, peer: Endpoint) -> None:
        """Accept the named peer, and close the connection of any other."""
        right = peer[0] in self._expected if self._expected is not None else self._may_connect(peer[0])
        if not right:
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.watch(sock.fileno(), EDGE, lambda _mask: None)
        self._end((sock, peer))

    def _end(self, result: tuple[socket.socket, Endpoint] | Failure) -> None:
        on_accepted, self._on_accepted = self._on_accepted, None
        self._close()
        if on_accepted is not None:
            on_accepted(result)

    def _close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._loop.unwatch(listener.fileno())
            listener.close()


def _listening_socket(host: str, family: socket.AddressFamily, source: SourceAddress) -> socket.socket:
    """Raises `OSError`."""
    if host not in source.free:
        return socket.create_server((host, 0), family=family, backlog=4)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        source.allow_foreign(listener)
        listener.bind((host, 0))
        listener.listen(4)
    except BaseException:
        listener.close()
        raise
    return listener
