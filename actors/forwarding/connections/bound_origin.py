"""Origin connections that are authenticated themselves (NTLM, Negotiate: RFC 4559) belong to one client connection.

Between two requests such a connection is parked here and not in the pool. It serves the next request of the same user
to the same target; for any other it is closed. When it ends, the client's connection ends, too (RFC 4559 section 6),
since what the client sends after that would go over a connection that is not authenticated.
"""

from __future__ import annotations

import select
from collections.abc import Callable

from actors.bus.loop import Loop
from actors.forwarding.net.connection_pool import ConnectionPool, OriginConnection

Served = tuple[str, int, str]
"""What a request is for: host, port, and the user of this proxy."""


class BoundOrigin:
    """The place of one client connection for such a connection, from its first one on; none of the pool's serves it.

    `on_lost` is called when the parked connection has ended.
    """

    __slots__ = ("_loop", "_on_lost", "_origin", "_pool", "_served")

    def __init__(self, loop: Loop, pool: ConnectionPool, on_lost: Callable[[], None]) -> None:
        self._loop = loop
        self._pool = pool
        self._on_lost = on_lost
        self._origin: OriginConnection | None = None
        self._served: Served | None = None

    def park(self, origin: OriginConnection, served: Served | None) -> None:
        """Keep a connection whose last exchange ended well, and was for `served`."""
        self._origin = origin
        self._served = served
        origin.readable = False
        self._loop.set_handler(origin.fd, self._on_idle_event)

    def acquire(self, wanted: Served | None, forward: bool) -> OriginConnection | None:
        """The parked connection for the client's next request; closed, and None, when it doesn't serve that one."""
        origin = self._origin
        if origin is not None and origin.epoch == self._pool.epoch and forward and wanted == self._served:
            self._origin = None
            return origin
        self.close()
        return None

    def _on_idle_event(self, mask: int) -> None:
        """It has ended, or sends bytes that respond to no request. An edge of being writable means nothing."""
        origin = self._origin
        if origin is not None and mask & ~select.EPOLLOUT and (origin.plain or not origin.is_reusable):
            self.close()
            self._on_lost()

    def close(self) -> None:
        """Close the parked connection."""
        origin, self._origin = self._origin, None
        if origin is not None:
            self._pool.close(origin)

    def __repr__(self) -> str:
        return f"<BoundOrigin for {self._served}: {'in use or closed' if self._origin is None else 'parked'}>"
