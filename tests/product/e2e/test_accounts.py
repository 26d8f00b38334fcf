"""Accounts of the whole product: with curl over every protocol, quotas that outlive restarts and kills."""

from __future__ import annotations

import base64
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until

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


def used(product: Product, proxy: dict[str, Any], name: str = "ada") -> int:
    return int(account(product, proxy, name)["usage"]["bytes"])


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


@pytest.mark.parametrize("protocol", ["https", "socks4", "socks5"])
def test_curl_with_each_protocol_is_let_in_by_its_account_and_by_no_other(
    product: Product, origin: Origin, tmp_path: Path, protocol: str
) -> None:
    accounts: list[dict[str, Any]] = [{**ADA}, {**BOB, "enabled": False}]
    more: dict[str, Any] = {}
    if protocol == "socks4":
        accounts = [{name: value for name, value in each.items() if name != "password"} for each in accounts]
    if protocol == "https":
        more["tls"] = dict(zip(("cert_file", "key_file"), make_pair(tmp_path), strict=True))
    proxy = product.proxy(protocol=protocol, accounts=accounts, **more)
    url = origin.url("/hello")
    good = curl(protocol, proxy, "ada:ada's word", url)
    assert (good.returncode, good.stdout) == (0, b"hello"), good.stderr
    disabled = curl(protocol, proxy, "bob:bob's word", url)
    stranger = curl(protocol, proxy, "eve:eve's word", url)
    if protocol in ("http", "https"):
        assert (disabled.stderr[-3:], stranger.stderr[-3:]) == (b"403", b"407")
        assert curl(protocol, proxy, "ada:bob's word", url).stderr[-3:] == b"407"
    else:
        assert disabled.returncode == stranger.returncode == 97, disabled.stderr
    wait_until(lambda: used(product, proxy) > len("hello"), "her bytes are counted")
    assert used(product, proxy, "bob") == 0
    product.api("DELETE", f"/proxies/{proxy['id']}")


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


def test_usage_outlives_the_proxys_process_the_collector_and_the_product(own_product: Product, origin: Origin) -> None:
    product = own_product
    proxy = product.proxy(accounts=[{**ADA, "quota": {"bytes": 20_000}}])

    def pushes(count: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            near, far = tunnel(proxy, server, ADA)
            near.sendall(b"x" * count)
            near.shutdown(socket.SHUT_WR)
            while far.recv(65536):
                continue
            far.close()
            assert _end_of(near)

    def settled(least: int) -> int:
        """What was used, once the collector has it on disk: it gets reports and saves each second."""
        return wait_until(lambda: (at := used(product, proxy)) >= least and at, "it is counted")

    def restarted(how: Callable[[], None]) -> None:
        before = used(product, proxy)
        how()
        wait_until(lambda: _running(product, proxy), "the proxy runs again")
        # the process before it may have reported its last bytes after the new one asked
        assert wait_until(lambda: (at := used(product, proxy)) >= before and at, "all is known") < before + 1_000

    pushes(4_000)
    first = settled(4_000)
    restarted(lambda: product.data("POST", f"/proxies/{proxy['id']}/restart") and None)
    pushes(4_000)
    second = settled(first + 4_000)
    restarted(lambda: product.actor("metrics").kill())
    assert used(product, proxy) >= second
    pushes(4_000)
    settled(second + 4_000)
    _wait_for_disk(product, proxy)

    def all_killed() -> None:
        product.kill_all()
        product.start()

    restarted(all_killed)
    pushes(9_000)
    assert fetch(proxy, origin) == "429"
    wait_until(lambda: used(product, proxy) > 20_000, "all is counted")


def _running(product: Product, proxy: dict[str, Any]) -> bool:
    detail = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]
    return bool(detail["runtime"] and detail["runtime"]["state"] == "running")


def _wait_for_disk(product: Product, proxy: dict[str, Any]) -> None:
    """Until the collector's file holds what the proxy's process says."""

    def stored() -> bool:
        with sqlite3.connect(f"file:{product.data_dir}/metrics/usage.sqlite?mode=ro", uri=True) as database:
            newest = "SELECT total_in + total_out FROM accounts ORDER BY number DESC LIMIT 1"
            [total] = database.execute(newest).fetchone()
        return bool(total == used(product, proxy))

    wait_until(stored, "it is on disk")
