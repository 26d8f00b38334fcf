"""Origin connections that are authenticated themselves (NTLM, Negotiate: RFC 4559) belong to one client connection.

Between two requests such a connection rests here and not in the pool. It serves the next request of the same user to
the same target; for any other it is closed. When it ends, the client's connection ends, too (RFC 4559 section 6), and
what the client has sent by then goes over a connection that nobody has authenticated.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

from actors.forwarding.net.connection_pool import OriginConnection
from actors.forwarding.protocols.commands import Open

if TYPE_CHECKING:
    from actors.forwarding.connections.client_connection import Client
    from actors.forwarding.connections.request_context import RequestContext


class Bound:
    """Of a client connection that has had such a connection: the one that rests now, if any.

    From then on none of the pool's serves it.
    """

    __slots__ = ("_client", "_origin", "_served")

    def __init__(self, client: Client) -> None:
        self._client = client
        self._origin: OriginConnection | None = None
        self._served: tuple[str, int, str] | None = None

    def rest(self, origin: OriginConnection, reusable: bool) -> None:
        """A request on `origin` is over: keep it for the client; where that can't be, end the client as well."""
        client = self._client
        if not reusable or client.over:
            client.serving.pool.close(origin)
            client.loop.call_soon(lambda: client.retire(patient=False))
            return
        self._origin = origin
        self._served = _wanted(client.last)
        origin.readable = False
        client.loop.hand_over(origin.fd, self._disturbed)

    def take(self, command: Open) -> OriginConnection | None:
        """The connection for this request of the client; None when another one has to be made."""
        origin = self._origin
        current = origin is not None and origin.epoch == self._client.serving.pool.epoch
        if current and command.forward and _wanted(self._client.request) == self._served:
            self._origin = None
            return origin
        self.end()
        return None

    def _disturbed(self, mask: int) -> None:
        """Something happened while it rested: the end, or bytes that nobody asked for. Being writable is nothing."""
        origin = self._origin
        if origin is not None and mask & ~select.EPOLLOUT and (origin.plain or not origin.is_reusable):
            self.end()
            self._client.retire(patient=False)

    def end(self) -> None:
        """Close the connection that rests."""
        origin, self._origin = self._origin, None
        if origin is not None:
            self._client.serving.pool.close(origin)

    def __repr__(self) -> str:
        return f"<Bound to {self._served}: {'in use or gone' if self._origin is None else 'resting'}>"


def _wanted(request: RequestContext) -> tuple[str, int, str] | None:
    """What the request asks for: host, port, and the user of this proxy."""
    target = request.target
    return None if target is None else (target.host, target.port, request.user)
