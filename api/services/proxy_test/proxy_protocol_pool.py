"""Connections of `urllib3` to a proxy that wants a header of the PROXY protocol before anything else, TLS included.

The product announces itself as what it is: somebody who connects for themself, as a balancer does that makes a check.
"""

from __future__ import annotations

import socket

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from actors.net.proxy_protocol import LOCAL_V2


class _Plain(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _announced(super()._new_conn())


class _Secure(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _announced(super()._new_conn())


def _announced(sock: socket.socket) -> socket.socket:
    sock.sendall(LOCAL_V2)
    return sock


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


ANNOUNCING_POOLS: dict[str, type[HTTPConnectionPool]] = {"http": _PlainPool, "https": _SecurePool}
"""For `PoolManager.pool_classes_by_scheme`."""
