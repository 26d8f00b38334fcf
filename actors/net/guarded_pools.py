"""Connections of `requests` that are made by a function of ours: for a guard that checks each address, and others."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NewConnectionError

from actors.net.own_requests import OutgoingGuard

Connect = Callable[[str, int], socket.socket]


class Refused(OSError):
    """The guard refuses the address."""


def connect_guarded(guard: OutgoingGuard, timeout: float) -> Connect:
    """A function that connects to the first address of a name that `guard` allows and that accepts the connection.

    It raises `OSError`, `Refused` among them.
    """

    def connect(host: str, port: int) -> socket.socket:
        failure: OSError | None = None
        for family, kind, protocol, _name, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            refusal = guard.check(str(address[0]), port, host)
            if refusal is not None:
                failure = failure or Refused(refusal)
                continue
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(timeout)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.connect(address)
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure or Refused(f"{host} has no address")

    return connect


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


def pools_by(open_socket: Callable[[HTTPConnection], socket.socket]) -> dict[str, type[HTTPConnectionPool]]:
    """Classes of pools, by scheme, whose connections get their sockets from `open_socket`."""

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return open_socket(self)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return open_socket(self)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}
