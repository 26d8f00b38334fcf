"""Accounts of the whole product: with curl over every protocol, quotas that outlive restarts and kills."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

ADA = {"username": "ada", "password": "ada's word"}
BOB = {"username": "bob", "password": "bob's word"}


def curl(protocol: str, proxy: dict[str, Any], user: str, url: str) -> subprocess.CompletedProcess[bytes]:
    scheme = "socks4a" if protocol == "socks4" else protocol
    command = ("curl", "-sS", "--noproxy", "", "--proxy-insecure", "-x", f"{scheme}://127.0.0.1:{proxy['port']}")
    more = ("-U", user, "-o", "-", "-w", "%{stderr}%{http_code}", "--max-time", "30", url)
    return subprocess.run((*command, *more), capture_output=True, timeout=180, stdin=subprocess.DEVNULL, check=False)


def account(product: Product, proxy: dict[str, Any], name: str = "ada") -> dict[str, Any]:
    detail: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}/accounts/{name}")["account"]
    return detail


def fetch(proxy: dict[str, Any], origin: Origin, user: dict[str, str] = ADA) -> str:
    return curl("http", proxy, f"{user['username']}:{user['password']}", origin.url("/hello")).stderr.decode()


def tunnel(proxy: dict[str, Any], server: socket.socket, user: dict[str, str]) -> tuple[socket.socket, socket.socket]:
    """Both ends of a tunnel through the proxy."""
    word = base64.b64encode(f"{user['username']}:{user['password']}".encode()).decode()
    near = socket.create_connection(("127.0.0.1", proxy["port"]), 20)
    host = f"127.0.0.1:{server.getsockname()[1]}"
    near.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic {word}\r\n\r\n".encode())
    far, _ = server.accept()
    far.settimeout(20)
    assert near.recv(1000).startswith(b"HTTP/1.1 200 ")
    return near, far


def test_a_quota_reached_ends_its_tunnels_and_a_reset_lets_in_again(product: Product, origin: Origin) -> None:
    proxy = product.proxy(accounts=[{**ADA, "quota": {"bytes": 50_000}}, BOB])
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended, _far = tunnel(proxy, server, ADA)
        busy, busy_far = tunnel(proxy, server, ADA)
        other, other_far = tunnel(proxy, server, BOB)
        busy.sendall(b"x" * 60_000)
        for sock in (ended, busy):
            with sock:
                assert _end_of(sock)
        other.sendall(b"still here")
        assert other_far.recv(100) == b"still here"
        other.close()
        busy_far.close()
    assert fetch(proxy, origin) == "429"
    assert account(product, proxy)["usage"]["remaining"] == 0
    reset = product.data("POST", f"/proxies/{proxy['id']}/accounts/ada/reset-usage")["account"]["usage"]
    assert reset["bytes"] == 0
    assert fetch(proxy, origin) == "200"
    product.api("DELETE", f"/proxies/{proxy['id']}")


def _end_of(sock: socket.socket) -> bool:
    try:
        return sock.recv(100) == b""
    except ConnectionResetError:
        return True
