"""Pages of live connections, and whether a connection was closed."""

from __future__ import annotations

import socket

from actors.bus.messages.forwarding import (
    ConnectionFilter,
    ConnectionPage,
    QueryConnections,
)
from tests.kit.forwarding_rig import Rig

ALL = ConnectionFilter()


def page(
    rig: Rig, only: ConnectionFilter = ALL, sort: str = "-age", limit: int = 1000, offset: int = 0
) -> ConnectionPage:
    response = rig.ask(QueryConnections(only, sort, limit, offset))
    assert isinstance(response, ConnectionPage)
    return response


def is_cut(sock: socket.socket) -> bool:
    """Whether the next that comes is its end; raises `TimeoutError` when nothing comes."""
    try:
        return sock.recv(100) == b""
    except ConnectionResetError:
        return True
