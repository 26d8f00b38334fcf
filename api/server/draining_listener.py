"""An address that the API has left: who has begun to connect there is let in and answered before its socket closes."""

from __future__ import annotations

import socket
from typing import Any

from waitress import wasyncore

from actors.net.listener_drain import reject_new_syns


class DrainingListener(wasyncore.dispatcher):  # type: ignore[misc]  # waitress has no types
    """One more listening socket of a server of waitress, for the last ones to come there. Server thread only."""

    def __init__(self, server: Any, listener: socket.socket) -> None:
        """`server.let_in(self)` is called when somebody waits. To be closed after
        `actors.net.listener_drain.DRAIN_SECONDS`."""
        reject_new_syns(listener)
        super().__init__(listener, map=server._map)
        self.accepting = True
        self._server = server

    def readable(self) -> bool:
        return not self._server.breathes

    def writable(self) -> bool:
        return False

    def handle_accept(self) -> None:
        self._server.let_in(self)

    def let_in_all(self) -> None:
        """Everybody who waits now."""
        while self._server.let_in(self):
            continue
