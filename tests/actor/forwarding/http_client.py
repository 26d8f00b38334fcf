"""An HTTP client of a proxy that sends and reads bytes."""

from __future__ import annotations

import socket

from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, read_head, read_head_alone

BIG = 20_000_000


def connect(rig: Rig) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", rig.port), timeout=60)
    sock.settimeout(20)
    return sock


def get(origin: Origin, path: str = "/", *fields: str) -> bytes:
    lines = [f"GET http://{origin.authority}{path} HTTP/1.1", f"Host: {origin.authority}", *fields]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def read_response(sock: socket.socket) -> tuple[bytes, bytes]:
    """Head and counted body of one response."""
    data = read_head(sock)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(
        next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")).split(b":")[1]
    )
    while len(body) < length:
        part = sock.recv(1 << 20)
        assert part, f"the response ended after {len(body)} of {length} bytes"
        body += part
    return head, body


def tunnel(rig: Rig, origin: Origin) -> socket.socket:
    sock = connect(rig)
    sock.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: {origin.authority}\r\n\r\n".encode())
    assert read_head_alone(sock).startswith(b"HTTP/1.1 200 ")
    return sock
