"""A SOCKS5 client that sends and reads bytes (RFC 1928)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.kit.forwarding_rig import Rig

LOOPBACK = b"\x7f\0\0\x01"


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece, f"closed after {data!r}"
        data += piece
    return data


def arrive(rig: Rig) -> socket.socket:
    return socket.create_connection(("127.0.0.1", rig.port), 60)


def address(host: bytes, port: int) -> bytes:
    return {4: b"\x01", 16: b"\x04"}[len(host)] + host + port.to_bytes(2, "big")


def ask(rig: Rig, command: int, to: bytes) -> tuple[socket.socket, int, tuple[str, int]]:
    """A SOCKS5 request without credentials: the connection, the reply code and the bound address."""
    sock = arrive(rig)
    sock.sendall(b"\x05\x01\x00")
    assert exactly(sock, 2) == b"\x05\x00"
    sock.sendall(bytes((5, command, 0)) + to)
    return sock, *reply(sock)


def reply(sock: socket.socket) -> tuple[int, tuple[str, int]]:
    head = exactly(sock, 4)
    assert (head[0], head[2]) == (5, 0)
    rest = exactly(sock, {1: 4, 4: 16}[head[3]] + 2)
    family = socket.AF_INET if head[3] == 1 else socket.AF_INET6
    return head[1], (socket.inet_ntop(family, rest[:-2]), int.from_bytes(rest[-2:], "big"))


@contextmanager
def responder(host: str = "127.0.0.1") -> Iterator[int]:
    """Sends back each datagram with itself in upper case, until `quit` comes; its port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.socket(family, socket.SOCK_DGRAM)
    server.bind((host, 0))

    def serve() -> None:
        while True:
            data, sender = server.recvfrom(65535)
            if data == b"quit":
                return
            server.sendto(data.upper(), sender)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    port: int = server.getsockname()[1]
    yield port
    with socket.socket(family, socket.SOCK_DGRAM) as last:
        last.sendto(b"quit", (host, port))
    thread.join(120)
    server.close()


def datagram_socket(host: str = "127.0.0.1") -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((host, 0))
    sock.settimeout(15)
    return sock


def signed_in(rig: Rig, user: str, word: str) -> socket.socket:
    """A connection whose user name and password were accepted (RFC 1929)."""
    sock = arrive(rig)
    name, password = user.encode(), word.encode()
    sock.sendall(b"\x05\x01\x02" + bytes((1, len(name))) + name + bytes((len(password),)) + password)
    assert exactly(sock, 4) == b"\x05\x02\x01\x00"
    return sock
