"""Connections of `urllib3` that are made by a function of ours: for a guard that checks each address, and others."""

from __future__ import annotations

import socket
from collections.abc import Callable

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

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
