"""Limits of a proxy with two workers in a running product: of accounts, and through an upgrade."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.installed import Installed
from tests.kit.product import Product
from tests.kit.scripted_origins import Origin as ScriptedOrigin
from tests.kit.wait import wait_until
from tests.kit.wire import Client, basic
from tests.kit.workers import all_run, limited

pytestmark = pytest.mark.product

WORD = "ada's long word"


def two_workers(product: Product, **fields: Any) -> dict[str, Any]:
    made = product.proxy(workers=2, **fields)
    all_run(product, made, 2)
    return made


def statuses(proxy: dict[str, Any], url: str, user: str, times: int) -> list[int]:
    found = []
    for _ in range(times):
        with Client(proxy["port"]) as client:
            found.append(client.get(url, basic(user, WORD), "Connection: close").status)
    return found


def tunnels(proxy: dict[str, Any], origin: Origin, user: str, times: int, stack: ExitStack) -> int:
    """How many of so many tunnels are opened; these stay open until the stack ends."""
    opened_now = 0
    for _ in range(times):
        client = stack.enter_context(Client(proxy["port"]))
        opened_now += b" 200 " in client.connect(f"127.0.0.1:{origin.port}", basic(user, WORD))
    return opened_now


def test_limits_of_an_account_hold_for_both_workers(product: Product, origin: Origin) -> None:
    limits = {"ada": {"connections": 3}, "bob": {"requests_per_minute": 5}}
    accounts = [{"username": user, "password": WORD, "limits": each} for user, each in limits.items()]
    proxy = two_workers(product, auth={"enabled": True}, accounts=accounts)
    try:
        assert statuses(proxy, origin.url("/hello"), "bob", 12) == [200] * 5 + [429] * 7
        with ExitStack() as stack:
            assert tunnels(proxy, origin, "ada", 10, stack) == 3
    finally:
        product.api("DELETE", f"/proxies/{proxy['id']}")


def opened(proxy: dict[str, Any], port: int) -> Client | None:
    """A tunnel to this port; None when it was refused."""
    client = Client(proxy["port"])
    if client.connect(f"127.0.0.1:{port}").startswith(b"HTTP/1.1 200 "):
        return client
    client.socket.close()
    return None


def holds(sock: socket.socket) -> None:
    """An origin that sends nothing, and ends with its client."""
    with sock:
        sock.settimeout(None)
        while sock.recv(1000):
            continue


def test_what_is_open_at_the_former_program_counts_after_an_upgrade() -> None:
    patient = Installed(env={"PROXYFLEET_SERVER__DRAIN_TIMEOUT": "300"})
    with patient as product, ScriptedOrigin(holds) as origin, ExitStack() as stack:
        proxy = two_workers(product, settings={"timeout": 600})  # an upgrade may take longer than a silent tunnel
        limited(product, proxy, connections_per_client=4)
        before = all_run(product, proxy, 2)
        kept = [client for _ in range(3) if (client := opened(proxy, origin.port)) is not None]
        assert len(kept) == 3
        for each in kept:
            stack.enter_context(each)
        product.install("2.0.0")
        assert product.upgrade().returncode == 0
        wait_until(lambda: not set(before) & set(all_run(product, proxy, 2)), "both have successors")
        more = [client for _ in range(6) if (client := opened(proxy, origin.port)) is not None]
        for each in more:
            stack.enter_context(each)
        assert len(more) == 1
        kept[0].socket.close()
        wait_until(
            lambda: (client := opened(proxy, origin.port)) and not client.socket.close(), "a place is free again"
        )
