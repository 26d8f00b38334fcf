"""Requests by `urllib3` on connections that a function of ours makes, for a guard that checks each address, and that
have an end.

A timeout of a socket is that of one read. `http.client` reads on for as long as lines of a head or responses with
status 100 come, so a peer that always has one more octet would never be left otherwise. So another thread breaks the
connection, and what waits for its peer gets an error, whatever that sends.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from urllib3 import BaseHTTPResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import NewConnectionError
from urllib3.util import parse_url

from actors.net.egress_guard import OutgoingGuard

Connect = Callable[[str, int], socket.socket]


class RefusedByGuard(OSError):
    """The guard refuses the address."""


def connect_guarded(
    guard: OutgoingGuard, timeout: float, adopt: Callable[[socket.socket], object] = lambda _sock: None
) -> Connect:
    """A function that connects to the first address of a name that `guard` allows and that accepts the connection.

    It raises `OSError`, `RefusedByGuard` among them. `adopt` gets each socket before it is connected.
    """

    def connect(host: str, port: int) -> socket.socket:
        failure: OSError | None = None
        for family, kind, protocol, _name, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            refusal = guard.check(str(address[0]), port, host)
            if refusal is not None:
                failure = failure or RefusedByGuard(refusal)
                continue
            sock = socket.socket(family, kind, protocol)
            try:
                adopt(sock)
                sock.settimeout(timeout)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.connect(address)
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure or RefusedByGuard(f"{host} has no address")

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


def pools_to(connect: Connect) -> dict[str, type[HTTPConnectionPool]]:
    """As `pools_by`, by host and port; an `OSError` becomes urllib3's."""

    def open_socket(connection: HTTPConnection) -> socket.socket:
        try:
            return connect(connection.host.strip("[]"), int(connection.port or 0))
        except OSError as error:
            raise NewConnectionError(connection, str(error.strerror or error)) from error

    return pools_by(open_socket)


@contextmanager
def requested(
    method: str,
    url: str,
    headers: dict[str, str],
    connect: Connect,
    timeout: float,
    body: bytes | None = None,
    authorities: str | None = None,
) -> Iterator[BaseHTTPResponse]:
    """The response to one request on a connection of its own, whose body is not read yet. No redirect is followed.

    Raises what urllib3 does. `timeout` is seconds of silence, `authorities` a file of those that certificates are
    verified by, in place of the system's.
    """
    parts = parse_url(url)
    trust: dict[str, Any] = {"ca_certs": authorities} if authorities and parts.scheme == "https" else {}
    made = pools_to(connect)[parts.scheme or ""]
    pool = made(parts.host or "", parts.port, timeout=timeout, maxsize=1, **trust)
    options: dict[str, Any] = {"retries": False, "redirect": False, "preload_content": False, "decode_content": False}
    try:
        response = pool.urlopen(method, parts.request_uri, body, headers, **options)
        try:
            yield response
        finally:
            response.close()
    finally:
        pool.close()


def reason_of(error: BaseException, ends_at: type[BaseException] | tuple[()] = ()) -> str:
    """The innermost reason in words, since urllib3 wraps it several times; that of the first `ends_at` on the way."""
    inner = error
    while True:
        wrapped = next((each for each in inner.args if isinstance(each, BaseException)), None)
        deeper = wrapped or inner.__cause__ or inner.__context__
        if deeper is None or isinstance(inner, ends_at):
            return str(getattr(inner, "strerror", None) or inner) or type(inner).__name__
        inner = deeper


class Breakable:
    """The connection of one request; `adopt` has it, `abort` may be called by another thread at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self.broken = False
        """Whether `abort` was called: a response may be cut short then, even if it looks whole."""

    def adopt(self, sock: socket.socket) -> socket.socket:
        """`sock`, which takes the place of one before. Raises `TimeoutError` if the request was aborted already."""
        with self._lock:
            if self._sock is not None:
                self._sock.close()
            self._sock = sock.dup()
            if self.broken:
                sock.close()
                raise TimeoutError("no whole response in time")
        return sock

    def abort(self) -> None:
        """End the request."""
        with self._lock:
            self.broken = True
            if self._sock is not None:
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return  # the peer was faster

    def release(self) -> None:
        """The request is over."""
        with self._lock:
            if self._sock is not None:
                self._sock.close()
                self._sock = None


@contextmanager
def within(seconds: float) -> Iterator[Breakable]:
    """A connection that is broken after so many seconds, and released at the end of the block."""
    connection = Breakable()
    timer = threading.Timer(seconds, connection.abort)
    timer.daemon = True
    timer.start()
    try:
        yield connection
    finally:
        timer.cancel()
        connection.release()
