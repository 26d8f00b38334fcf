"""Processes that die by SIGKILL: what goes on meanwhile, and how soon everything is back."""

from __future__ import annotations

import random
from typing import Any

import psutil
import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.e2e.fetching import fetched, healthy

pytestmark = pytest.mark.product

PATIENCE = 20.0
"""What a loaded test machine may take longer than promised, as a factor."""


def state(product: Product, proxy: dict[str, Any]) -> dict[str, Any]:
    runtime: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]
    return runtime


def test_forwarding_goes_on_while_the_api_is_dead_and_it_comes_back_with_all_its_data(
    own_product: Product, origin: Origin
) -> None:
    proxies = [own_product.proxy() for _ in range(3)]
    old = own_product.actor("api")
    old.kill()
    for proxy in proxies:
        assert fetched(proxy, origin)
    wait_until(lambda: not old.is_running(), "the old one is gone")
    own_product.wait_healthy(2 * PATIENCE)
    listed = own_product.data("GET", "/proxies")["proxies"]
    assert {each["id"] for each in listed} == {each["id"] for each in proxies}
    for proxy in proxies:
        assert state(own_product, proxy)["pid"] == proxy["runtime"]["pid"]


def runs_without(product: Product, proxy: dict[str, Any], ended: int) -> bool:
    """Whether the proxy runs, by a report that is younger than the end of this process."""
    now = state(product, proxy)
    return now["state"] == "running" and now["pid"] != ended


def test_after_a_death_of_each_kind_the_product_is_healthy_again(own_product: Product, origin: Origin) -> None:
    proxy = own_product.proxy()
    dice = random.Random(7)  # the same order in every run, so that a failure can be seen again
    kinds = ["api", "metrics", "logs", "webhooks", "resolver", "forwarding", "forwarding"]
    dice.shuffle(kinds)
    for kind in kinds:
        if kind == "forwarding":
            victim = psutil.Process(wait_until(lambda: state(own_product, proxy)["pid"], "the proxy has a process"))
        else:
            victim = own_product.actor(kind)
        victim.kill()
        wait_until(lambda victim=victim: not victim.is_running(), f"{kind} is gone")
        own_product.wait_healthy(5 * PATIENCE)
        wait_until(lambda ended=victim.pid: runs_without(own_product, proxy, ended), "the proxy runs", 5 * PATIENCE)
        assert fetched(proxy, origin)
    for kind in ("api", "metrics", "logs", "webhooks", "resolver"):
        own_product.actor(kind)
    health = wait_until(lambda: healthy(own_product), "the health report is healthy", 5 * PATIENCE)
    assert health["checks"]["proxy_service"]["active_proxies"] == 1
