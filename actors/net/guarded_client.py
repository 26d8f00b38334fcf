"""The product's own HTTP requests, by `urllib3`: to addresses that a guard has checked, with an end and a bounded body.

A timeout of a socket is that of one read. `http.client` reads on for as long as lines of a head or responses with
status 100 come, so a peer that always has one more octet would never be left otherwise. So another thread breaks the
connection, and what waits for its peer gets an error, whatever that sends.

No redirect is followed: its target may be another's, and a body or a secret is for one. No content coding is undone.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from http.client import HTTPException
from typing import Any, NamedTuple

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, IncompleteRead, NewConnectionError, ProtocolError

from actors.net.egress_guard import OutgoingGuard

ABORT_FIRST = 1.0
"""Seconds that sockets wait beyond a deadline, so that this ends the request."""
_PIECE = 64 * 1024
_OPTIONS: dict[str, Any] = {"retries": False, "redirect": False, "preload_content": False, "decode_content": False}

Connect = Callable[[str, int, Callable[[socket.socket], object]], socket.socket]
"""Connects to a host and port; what is called with each socket comes before it is connected. Raises `OSError`."""


class RefusedByGuard(OSError):
    """The guard refuses the address."""


class RequestFailed(Exception):
    """There is no response, or not all of it; the text is the reason.

    `late`: the request was aborted. `cut_short`: the server ended the connection too early.
    """

    def __init__(self, reason: str, late: bool = False, cut_short: bool = False) -> None:
        super().__init__(reason)
        self.late = late
        self.cut_short = cut_short


def guarded(guard: OutgoingGuard | None) -> Connect:
    """Connects to the first address of a name that `guard` allows and that accepts the connection."""

    def connect(host: str, port: int, adopt: Callable[[socket.socket], object]) -> socket.socket:
        failure: OSError | None = None
        for family, kind, protocol, _name, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            refusal = None if guard is None else guard.check(str(address[0]), port, host)
            if refusal is not None:
                failure = failure or RefusedByGuard(refusal)
                continue
            sock = socket.socket(family, kind, protocol)
            try:
                adopt(sock)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.connect(address)
            except OSError as error:
                sock.close()
                failure = error
            else:
                return sock
        raise failure or RefusedByGuard(f"{host} has no address")

    return connect


class HttpProxy(NamedTuple):
    """An HTTP proxy that requests go through, with what it gets of itself, and a context for TLS to it of its own."""

    url: str
    headers: Mapping[str, str]
    context: ssl.SSLContext | None = None


class HttpResponse:
    """A response whose body is not read yet."""

    def __init__(self, raw: BaseHTTPResponse, failing: Callable[[], AbstractContextManager[None]]) -> None:
        self.status = raw.status
        self.headers: Mapping[str, str] = raw.headers
        self._raw = raw
        self._failing = failing

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes. Raises `RequestFailed`."""
        with self._failing():
            while piece := self._raw.read1(_PIECE):
                yield piece

    def beginning(self, most: int, cut: bool = False) -> bytes:
        """The first bytes of the body, at most so many. Raises `RequestFailed`; with `cut`, not for a body that breaks
        off, but for one that is late: its end may be ours then."""
        read = b""
        try:
            for piece in self.pieces():
                read += piece
                if len(read) >= most:
                    break
        except RequestFailed as failure:
            if failure.late or not cut:
                raise
        return read[:most]

    def whole(self, most: int) -> bytes:
        """The body. Raises `RequestFailed`, also for one that is longer or has a content coding."""
        coding = self.headers.get("content-encoding", "identity").strip()
        if coding.lower() != "identity":
            raise RequestFailed(f"it encoded its response as {coding[:40]!r}; only identity is accepted")
        read = self.beginning(most + 1)
        if len(read) > most:
            raise RequestFailed(f"its response has more than {most} bytes")
        return read


class HttpClient:
    """Makes requests, one at a time, each on a connection of its own that `connect` makes."""

    def __init__(
        self,
        connect: Connect,
        deadline: float | None = None,
        silence: float | None = None,
        authorities: str | None = None,
        proxy: HttpProxy | None = None,
    ) -> None:
        """`deadline` is the seconds for all of a request and `silence` those for a read; without it `deadline` holds
        alone. `authorities` is a file of those that certificates are verified by, in place of the system's."""
        self.aborted = False
        """Whether `abort` was called: a response may be cut short then, even if it looks whole."""
        self._connect = connect
        self._deadline = deadline
        self._timeout = silence if deadline is None or silence is not None else deadline + ABORT_FIRST
        self._authorities = authorities
        self._proxy = proxy
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None

    @contextmanager
    def request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> Iterator[HttpResponse]:
        """The response to one request. Raises `RequestFailed`."""
        with self._failing():
            manager = self._manager()
        timer = None if self._deadline is None else threading.Timer(self._deadline, self.abort)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            with self._failing():
                raw = manager.urlopen(method, url, body=body, headers={**headers, "connection": "close"}, **_OPTIONS)
            with closing(raw):
                yield HttpResponse(raw, self._failing)
        finally:
            if timer is not None:
                timer.cancel()
            manager.clear()
            self._take(None)

    def abort(self) -> None:
        """End the request, from any thread and at any time."""
        with self._lock:
            self.aborted = True
            if self._sock is not None:
                try:
                    self._sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return  # the peer was faster

    def _take(self, sock: socket.socket | None) -> None:
        """Have this socket in place of one before. Raises `TimeoutError` if the request was aborted already."""
        with self._lock:
            if self._sock is not None:
                self._sock.close()
            self._sock = None if sock is None else sock.dup()
            if sock is not None:
                sock.settimeout(self._timeout)
                if self.aborted:
                    raise TimeoutError("no whole response in time")

    def _open(self, connection: HTTPConnection) -> socket.socket:
        port = int(connection.port or connection.default_port)
        try:
            return self._connect(connection.host.strip("[]"), port, self._take)
        except OSError as error:
            raise NewConnectionError(connection, str(error.strerror or error)) from error

    def _manager(self) -> PoolManager:
        options: dict[str, Any] = {"timeout": self._timeout, "maxsize": 1, "ca_certs": self._authorities}
        made = PoolManager(**options) if self._proxy is None else _through(self._proxy, options)
        made.pool_classes_by_scheme = _pools(self._open)
        return made

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """What fails in this block is a `RequestFailed`; all does once the request was aborted."""
        try:
            yield
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            cut_short = isinstance(error, (IncompleteRead, ProtocolError))
            raise RequestFailed(_reason_of(error), self.aborted, cut_short) from error
        if self.aborted:
            raise RequestFailed("no whole response in time", late=True)


def _through(proxy: HttpProxy, options: dict[str, Any]) -> ProxyManager:
    own: dict[str, Any] = (
        {} if proxy.context is None else {"proxy_ssl_context": proxy.context, "proxy_assert_hostname": False}
    )
    return ProxyManager(proxy.url, proxy_headers=proxy.headers, **own, **options)


def _pools(open_socket: Callable[[HTTPConnection], socket.socket]) -> dict[str, type[HTTPConnectionPool]]:
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


def _reason_of(error: BaseException) -> str:
    """The innermost reason in words, since urllib3 wraps it several times."""
    inner = error
    while True:
        wrapped = next((each for each in inner.args if isinstance(each, BaseException)), None)
        deeper = wrapped or inner.__cause__ or inner.__context__
        if deeper is None:
            return str(getattr(inner, "strerror", None) or inner) or type(inner).__name__
        inner = deeper
