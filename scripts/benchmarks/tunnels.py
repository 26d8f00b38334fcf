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

from benchmarks.processes import BenchError
from benchmarks.programs import GIGABYTE
from benchmarks.rounds import Subject

_LOOPBACK = "127.0.0.1"
_SECONDS = 30


def open_tunnel(subject: Subject, target: int) -> socket.socket:
    """A tunnel to this port of loopback, ready for bytes. Raises `BenchError` when the proxy refuses."""
    client = socket.create_connection((_LOOPBACK, subject.port), _SECONDS)
    try:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if subject.tls:
            client = trusting().wrap_socket(client)
        if subject.speaks == "http":
            client.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (target, target))
            read_head(client, b" 200 ")
        elif subject.speaks == "socks5":  # RFC 1928: no authentication, CONNECT to an IPv4 address
            client.sendall(b"\x05\x01\x00")
            _exactly(client, 2, b"\x05\x00")
            client.sendall(b"\x05\x01\x00\x01\x7f\x00\x00\x01" + target.to_bytes(2, "big"))
            _exactly(client, 10, b"\x05\x00\x00\x01")
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


def _exactly(client: socket.socket, count: int, beginning: bytes) -> None:
    reply = b""
    while len(reply) < count and (piece := client.recv(count - len(reply))):
        reply += piece
    if len(reply) < count or not reply.startswith(beginning):
        raise BenchError(f"the proxy answered {reply!r}")


def read_head(client: socket.socket, expected: bytes) -> bytes:
    """Read one head; what came after it. Raises `BenchError` when it has not the status `expected`."""
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
        received = len(read_head(client, b" 206 "))
        while received < size and (count := client.recv_into(buffer, 0, flags)):
            received += count
    if received != size:
        raise BenchError(f"{received} of {size} bytes arrived")


@contextmanager
def silent_origin() -> Iterator[socket.socket]:
    """A listener in this process, at which connections are accepted and nothing is said."""
    with socket.create_server((_LOOPBACK, 0), backlog=4096) as listener:
        listener.settimeout(_SECONDS)
        yield listener


@contextmanager
def idle(subject: Subject, origin: socket.socket, count: int) -> Iterator[None]:
    """Hold so many tunnels open in which nothing has been said."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(open_tunnel(subject, origin.getsockname()[1]))
            stack.enter_context(origin.accept()[0])
        yield


def short(subject: Subject, origin: socket.socket, seconds: float) -> int:
    """Open and close tunnels for so long, one after the other, the client closing first; how many."""
    count, end, port = 0, time.monotonic() + seconds, origin.getsockname()[1]
    while time.monotonic() < end:
        with open_tunnel(subject, port), origin.accept()[0]:
            count += 1
    return count
