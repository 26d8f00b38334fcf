"""An address that the API has left: connections that wait there are accepted and served before its socket closes."""

from __future__ import annotations

import socket
from typing import Any

from waitress import wasyncore

from actors.net.listener_drain import reject_new_syns


class DrainingListener(wasyncore.dispatcher):
    """One more listening socket of a server of waitress. Server thread only."""

    def __init__(self, server: Any, listener: socket.socket) -> None:
        """Calls `server.accept_from(self)` when a connection waits. To be closed after
        `actors.net.listener_drain.DRAIN_SECONDS`."""
        reject_new_syns(listener)
        super().__init__(listener, map=server._map)
        self.accepting = True
        self._server = server

    def readable(self) -> bool:
        return not self._server.pauses_accepting

    def writable(self) -> bool:
        return False

    def handle_accept(self) -> None:
        self._server.accept_from(self)

    def accept_all(self) -> None:
        """Accept every connection that waits now."""
        while self._server.accept_from(self):
            continue
