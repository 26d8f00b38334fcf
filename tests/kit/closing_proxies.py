"""Proxies that close the connection where they don't reach a target, as pproxy and 3proxy do; scripts for `Origin`."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

from tests.kit.scripted_origins import read_head


def closing_http(sock: socket.socket) -> None:
    """Takes CONNECT and requests in absolute-form, and says nothing about a failure."""
    head = read_head(sock)
    if not head:  # a check ends here
        sock.close()
        return
    method, target = head.split(b" ", 2)[:2]
    tunnel = method == b"CONNECT"
    where = urlsplit(f"//{target.decode()}" if tunnel else target.decode())
    with _reached(sock, where.hostname or "", where.port or 80) as origin:
        if tunnel:
            sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            origin.sendall(head)
        _relay(sock, origin)


def closing_socks5(sock: socket.socket) -> None:
    """Takes SOCKS5 without authentication to an IPv4 address, and says nothing about a failure."""
    sock.recv(512)
    sock.sendall(b"\x05\x00")
    request = sock.recv(512)
    if request[:4] != b"\x05\x01\x00\x01":  # a check ends here
        sock.close()
        return
    with _reached(sock, socket.inet_ntoa(request[4:8]), int.from_bytes(request[8:10], "big")) as origin:
        sock.sendall(b"\x05\x00\x00\x01" + bytes(6))
        _relay(sock, origin)


def _reached(sock: socket.socket, host: str, port: int) -> socket.socket:
    try:
        return socket.create_connection((host, port), 10)
    except OSError:
        sock.close()
        raise


def _relay(sock: socket.socket, origin: socket.socket) -> None:
    back = threading.Thread(target=_copy, args=(origin, sock), daemon=True)
    back.start()
    _copy(sock, origin)
    back.join()
    sock.close()


def _copy(source: socket.socket, destination: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            destination.sendall(data)
        destination.shutdown(socket.SHUT_WR)
