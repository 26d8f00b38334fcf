"""Connections of `requests` that are made by a function of ours."""

from __future__ import annotations

from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import PoolManager

from actors.net.guarded_client import Connect, pools_to


class GuardedAdapter(HTTPAdapter):
    """Connects by `connect`, once for each request. A configured proxy is connected to without the guard."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **more: Any) -> None:
        """See `HTTPAdapter`."""
        manager = PoolManager(num_pools=connections, maxsize=maxsize, block=block, **more)
        manager.pool_classes_by_scheme = pools_to(self._connect)
        self.poolmanager = manager
