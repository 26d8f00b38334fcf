"""Tunnels through a proxy: CONNECT, SOCKS5 or a relay, with TLS to the proxy or without; full of bytes, idle, or short.

What is received is thrown away in the kernel (`MSG_TRUNC`, tcp(7)) where nothing is encrypted, so that the receiver is
not what limits the rate.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from benchmarks.peers import GIGABYTE, Subject
from benchmarks.processes import BenchError

_LOOPBACK = "127.0.0.1"
_SECONDS = 30


def open_tunnel(subject: Subject, target: int, host: str = _LOOPBACK) -> socket.socket:
    """A tunnel to this port of loopback, ready for bytes; `host` is how CONNECT names it. Raises `BenchError` when the
    proxy refuses."""
    client = socket.create_connection((_LOOPBACK, subject.port), _SECONDS)
    try:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if subject.tls:
            client = trusting().wrap_socket(client)
        if subject.speaks == "http":
            _connect(client, f"{host}:{target}".encode())
        elif subject.speaks == "socks5":
            _socks5(client, target)
    except BaseException:
        client.close()
        raise
    return client


def trusting() -> ssl.SSLContext:
    """A client's context of TLS 1.3 for any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate was made for this run
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _connect(client: socket.socket, target: bytes) -> None:
    client.sendall(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, target))
    _head(client, b" 200 ")


def _socks5(client: socket.socket, target: int) -> None:
    """RFC 1928: no authentication, CONNECT to an IPv4 address."""
    client.sendall(b"\x05\x01\x00")
    _exactly(client, 2, b"\x05\x00")
    client.sendall(b"\x05\x01\x00\x01\x7f\x00\x00\x01" + target.to_bytes(2, "big"))
    _exactly(client, 10, b"\x05\x00\x00\x01")


def _exactly(client: socket.socket, count: int, beginning: bytes) -> None:
    reply = b""
    while len(reply) < count and (piece := client.recv(count - len(reply))):
        reply += piece
    if len(reply) < count or not reply.startswith(beginning):
        raise BenchError(f"the proxy answered {reply!r}")


def _head(client: socket.socket, expected: bytes) -> bytes:
    """Read one head; what came after it."""
    head, end = b"", -1
    while end < 0 and (piece := client.recv(65536)):
        head += piece
        end = head.find(b"\r\n\r\n")
    if end < 0 or expected not in head[:16]:
        raise BenchError(f"the proxy answered {head[:200]!r}")
    return head[end + 4 :]


def download(subject: Subject, origin: int, size: int) -> float:
    """Fetch so many bytes, a tunnel for each 1 GiB or what is left; the seconds that it took."""
    began = time.monotonic()
    while size > 0:
        _fetch(subject, origin, min(size, GIGABYTE))
        size -= GIGABYTE
    return time.monotonic() - began


def _fetch(subject: Subject, origin: int, size: int) -> None:
    buffer = bytearray(1 << 20)
    flags = 0 if subject.tls else socket.MSG_TRUNC
    with open_tunnel(subject, origin) as client:
        wanted = b"GET /big HTTP/1.1\r\nHost: origin\r\nConnection: close\r\nRange: bytes=0-%d\r\n\r\n" % (size - 1)
        client.sendall(wanted)
        received = len(_head(client, b" 206 "))
        while received < size and (count := client.recv_into(buffer, 0, flags)):
            received += count
    if received != size:
        raise BenchError(f"{received} of {size} bytes arrived")


class SilentOrigin:
    """Accepts connections and says nothing; lives in this process."""

    def __init__(self) -> None:
        self._listener = socket.create_server((_LOOPBACK, 0), backlog=4096)
        self._listener.settimeout(_SECONDS)
        self.port: int = self._listener.getsockname()[1]

    def accept(self) -> socket.socket:
        return self._listener.accept()[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


@contextmanager
def idle(subject: Subject, origin: SilentOrigin, count: int) -> Iterator[None]:
    """Hold so many tunnels open in which nothing has been said."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(open_tunnel(subject, origin.port))
            stack.enter_context(origin.accept())
        yield


def short(subject: Subject, origin: SilentOrigin, seconds: float) -> int:
    """Open and close tunnels for so long, one after the other, the client closing first; how many."""
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with open_tunnel(subject, origin.port), origin.accept():
            count += 1
    return count


def greeted(subject: Subject, origin: SilentOrigin, seconds: float) -> int:
    """As `short`, with a client's first flight to `localhost` and a response to it in each; how many."""
    flight, response = client_hello("localhost"), b"\x16\x03\x03\0\x5a\x02\0\0\x56\x03\x03" + bytes(84)
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with open_tunnel(subject, origin.port, "localhost") as client, origin.accept() as accepted:
            client.sendall(flight)
            _exactly(accepted, len(flight), flight)
            accepted.sendall(response)
            _exactly(client, len(response), response)
            count += 1
    return count


def client_hello(name: str) -> bytes:
    """The first flight of OpenSSL's client for this name."""
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise BenchError("a handshake was complete without a server")
