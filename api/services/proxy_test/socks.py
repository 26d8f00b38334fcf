"""A SOCKS client for `requests`: enough to use a proxy of the product, and to report its refusal.

Names are left to the proxy (`socks5h`, SOCKS 4a), as most clients do.

python-socks 3.2 was considered and is not used. It has no public way to begin on a connected socket, which a PROXY
header needs; refused credentials (407 here) have no error code and would be recognised by their text alone; and its
timeout is that of a single read, where all of the handshake has one deadline here.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError

from actors.forwarding.protocols.socks.replies import V4_GRANTED, status_of
from actors.net.guarded_client import Breakable, pools_by
from actors.net.proxy_protocol import LOCAL_V2
from actors.net.socks_wire import pack_address

_V4_REFUSED = 502
"""SOCKS4 replies have no reason."""


class SocksRefused(OSError):
    """The proxy refused the connection; `status` is the HTTP status that its reply means."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(slots=True)
class Route:
    """The way through one proxy. `protocol` is `socks4` or `socks5`; `refusal` is set when the proxy has refused.

    `link` has the connection to the proxy. With `proxy_header` the proxy expects a header of the PROXY protocol first.
    """

    protocol: str
    proxy: tuple[str, int]
    user: str
    password: str
    timeout: float
    proxy_header: bool = False
    link: Breakable = field(default_factory=Breakable)
    refusal: SocksRefused | None = None

    def connect(self, host: str, port: int) -> socket.socket:
        """A connection to `host` through the proxy.

        Raises `OSError`, which is a `SocksRefused` when the proxy refuses, and urllib3's `ConnectTimeoutError` when it
        does not reply.
        """
        deadline = time.monotonic() + self.timeout
        sock = socket.create_connection(self.proxy, self.timeout)
        try:
            self.link.adopt(sock)
            wire = _Wire(sock, deadline)
            if self.proxy_header:
                wire.send(LOCAL_V2)
            (self._connect_v4 if self.protocol == "socks4" else self._connect_v5)(wire, host.strip("[]"), port)
            sock.settimeout(self.timeout)
        except SocksRefused as refusal:
            self.refusal = refusal
            sock.close()
            raise
        except TimeoutError as error:
            sock.close()
            raise ConnectTimeoutError("the proxy did not answer the handshake in time") from error
        except BaseException:
            sock.close()
            raise
        return sock

    def _connect_v4(self, wire: _Wire, host: str, port: int) -> None:
        if ":" in host:
            raise SocksRefused(_V4_REFUSED, "socks4 has no IPv6 targets")
        literal = _is_literal(host)
        address = socket.inet_aton(host) if literal else b"\0\0\0\1"
        name = b"" if literal else host.encode("idna") + b"\0"
        wire.send(b"\x04\x01" + port.to_bytes(2, "big") + address + self.user.encode() + b"\0" + name)
        reply = wire.exactly(8)
        if reply[1] != V4_GRANTED:
            raise SocksRefused(_V4_REFUSED, f"the proxy answered {reply[1]} to CONNECT")

    def _connect_v5(self, wire: _Wire, host: str, port: int) -> None:
        wire.send(b"\x05\x02\x00\x02")
        method = wire.exactly(2)[1]
        if method == 2:
            user, password = self.user.encode(), self.password.encode()
            wire.send(bytes((1, len(user))) + user + bytes((len(password),)) + password)
            if wire.exactly(2)[1]:
                raise SocksRefused(407, "the proxy did not take the credentials")
        elif method:
            raise SocksRefused(407, "the proxy takes no method of authentication that a test has")
        name = host.encode("idna") if not _is_literal(host) else b""
        packed = bytes((3, len(name))) + name + port.to_bytes(2, "big") if name else pack_address((host, port))
        wire.send(b"\x05\x01\x00" + packed)
        reply = wire.exactly(4)
        if reply[1]:
            raise SocksRefused(status_of(reply[1]), f"the proxy answered {reply[1]} to CONNECT")
        wire.exactly({1: 4, 4: 16}.get(reply[3], 0) + 2)


class _Wire:
    """A socket whose reads end at one deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the handshake took too long")
            self._sock.settimeout(left)
            piece = self._sock.recv(count - len(data))
            if not piece:
                raise SocksRefused(_V4_REFUSED, "the proxy closed the connection in the handshake")
            data += piece
        return data


def _is_literal(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


class SocksAdapter(HTTPAdapter):
    """Mounted in a `requests.Session`, it sends all requests by `route`."""

    def __init__(self, route: Route) -> None:
        self._route = route
        super().__init__(max_retries=0)

    def init_poolmanager(self, *arguments: Any, **more: Any) -> None:
        """As in the base class, with connections through the proxy."""
        super().init_poolmanager(*arguments, **more)
        self.poolmanager.pool_classes_by_scheme = pools_by(self._open_socket)

    def _open_socket(self, connection: HTTPConnection) -> socket.socket:
        return self._route.connect(connection.host, connection.port or connection.default_port)
