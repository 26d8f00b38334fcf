"""Limits of a proxy with two workers in a running product."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wire import Client, basic
from tests.kit.workers import all_run

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
