"""Connections of `requests` that are made by a function of ours."""

from __future__ import annotations

import socket
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection
from urllib3.exceptions import NewConnectionError

from actors.net.guarded_pools import Connect, pools_by


class GuardedAdapter(HTTPAdapter):
    """Connects by `connect`, once for each request. A configured proxy is connected to without the guard."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **more: Any) -> None:
        """See `HTTPAdapter`."""
        manager = PoolManager(num_pools=connections, maxsize=maxsize, block=block, **more)
        manager.pool_classes_by_scheme = pools_by(self._checked)
        self.poolmanager = manager

    def _checked(self, connection: HTTPConnection) -> socket.socket:
        try:
            return self._connect(connection.host.strip("[]"), int(connection.port or 0))
        except OSError as error:
            raise NewConnectionError(connection, str(error.strerror or error)) from error
