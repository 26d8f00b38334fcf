"""Limits of a proxy with two workers in a running product."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from threading import Thread
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client, basic
from tests.kit.workers import all_run

pytestmark = pytest.mark.product

WORD = "ada's long word"
RATE = 1_000_000


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


def test_limits_of_an_account_hold_over_two_proxies_of_two_workers_each(product: Product, origin: Origin) -> None:
    """Also when a worker is killed, whose connections are free at once, and through a restart of a proxy."""
    proxies = [two_workers(product, auth={"enabled": True}) for _ in range(2)]
    users = {"cleo": {"connections": 3}, "dan": {"requests_per_minute": 5}, "eve": {"bandwidth_out": RATE}}
    made = [
        product.data("POST", "/accounts", {"username": user, "password": WORD, "limits": limits})["account"]["id"]
        for user, limits in users.items()
    ]
    try:
        with ExitStack() as stack:
            assert [tunnels(each, origin, "cleo", 5, stack) for each in proxies] == [3, 0]
            for pid in all_run(product, proxies[0], 2):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: tunnels(proxies[1], origin, "cleo", 1, stack), "the places are free")
        assert statuses(proxies[0], origin.url("/hello"), "dan", 3) == [200] * 3
        assert statuses(proxies[1], origin.url("/hello"), "dan", 3) == [200, 200, 429]
        product.data("POST", f"/proxies/{proxies[0]['id']}/restart")
        assert statuses(proxies[0], origin.url("/hello"), "dan", 1) == [429]
        # what a busy machine leaves of it is of no matter here; a clock set by hand holds the lower bound
        assert RATE * 0.5 <= together(proxies, origin, "eve", 5.0) / 5.0 <= RATE * 1.15
    finally:
        for each in proxies:
            product.api("DELETE", f"/proxies/{each['id']}")
        for identifier in made:
            product.api("DELETE", f"/accounts/{identifier}")


def together(proxies: list[dict[str, Any]], origin: Origin, user: str, seconds: float) -> int:
    """Bytes that an account gets in so many seconds by four downloads, two of each proxy."""
    received = [0] * 4
    end = time.monotonic() + seconds

    def download(number: int) -> None:
        with Client(proxies[number % 2]["port"]) as client:
            for _ in range(8):  # one after the other, more than there is time for
                client.send(f"GET {origin.url('/megabyte')} HTTP/1.1\r\nHost: x\r\n{basic(user, WORD)}\r\n\r\n")
            while time.monotonic() < end:
                received[number] += len(client.socket.recv(65536))

    threads = [Thread(target=download, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(received)
