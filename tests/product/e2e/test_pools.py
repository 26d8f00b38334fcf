"""Pools of the whole product: several proxies on one pool, from the command of the operator to the records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = [pytest.mark.product, needs_curl]


def upstream(exit_proxy: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A proxy of the product as an upstream."""
    return {"name": exit_proxy["name"], "protocol": "http", "host": "127.0.0.1", "port": exit_proxy["port"], **fields}


class Made:
    """What a test has made, deleted behind it in the other order."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._paths: list[str] = []

    def proxy(self, **fields: Any) -> dict[str, Any]:
        made = self._product.proxy(**fields)
        self._paths.append(f"/proxies/{made['id']}")
        return made

    def put(self, kind: str, body: dict[str, Any]) -> None:
        self._product.data("POST", f"/{kind}", body)
        self._paths.append(f"/{kind}/{body['name']}")

    def delete(self) -> None:
        for path in reversed(self._paths):
            self._product.data("DELETE", path)


@pytest.fixture
def made(product: Product) -> Iterator[Made]:
    things = Made(product)
    yield things
    things.delete()


@pytest.fixture
def exits(made: Made) -> list[dict[str, Any]]:
    """Three proxies that are upstreams of the pool `exits`."""
    found = [made.proxy() for _ in range(3)]
    made.put("pools", {"name": "exits", "policy": "round_robin", "upstreams": [upstream(each) for each in found]})
    return found


def parents(product: Product, proxy: dict[str, Any]) -> set[tuple[str, str]]:
    """The pools and upstreams that records of this proxy name."""
    logs = product.data("GET", f"/logs?proxy_id={proxy['id']}&limit=100")["logs"]
    return {(each["pool"], each["parent"]) for each in logs}


def _has(product: Product, proxy: dict[str, Any], names: set[tuple[str, str]]) -> bool:
    return parents(product, proxy) == names


def status(proxy: dict[str, Any], url: str) -> int:
    return curl("-x", f"http://127.0.0.1:{proxy['port']}", url)[0]


def test_two_proxies_on_one_pool_go_through_all_upstreams_and_lose_none_with_a_dead_one(
    product: Product, origin: Origin, made: Made, exits: list[dict[str, Any]]
) -> None:
    proxies = [made.proxy(pool="exits") for _ in range(2)]
    url = origin.url("/hello")
    for proxy in proxies:
        assert [status(proxy, url) for _ in range(6)] == [200] * 6
    names = {("exits", each["name"]) for each in exits}
    for proxy in proxies:
        wait_until(partial(_has, product, proxy, names), "records name the pool and all upstreams")
    product.data("POST", f"/proxies/{exits[0]['id']}/stop")
    for proxy in proxies * 3:
        assert status(proxy, url) == 200
    known = product.data("GET", "/pools/exits")["pool"]["status"]["upstreams"]
    assert {each["name"]: each["state"] for each in known}[exits[0]["name"]] == "down"
    said = product.data("POST", f"/proxies/{proxies[1]['id']}/explain", {"client_ip": "127.0.0.1", "target": url})
    assert (said["upstreams"]["pool"], said["upstreams"]["total"]) == ("exits", 3)
    assert [each["name"] for each in said["upstreams"]["left_out"]] in ([exits[0]["name"]], [])  # a trial may be due


def test_a_changed_pool_holds_at_once_and_a_rule_chooses_another_pool(
    product: Product, origin: Origin, made: Made, exits: list[dict[str, Any]]
) -> None:
    proxy, url = made.proxy(pool="exits"), origin.url("/hello")
    product.data("PATCH", "/pools/exits", {"upstreams": [upstream(exits[2])]})
    assert status(proxy, url) == 200
    wait_until(lambda: parents(product, proxy) == {("exits", exits[2]["name"])}, "the new list holds")
    made.put("pools", {"name": "other", "upstreams": [upstream(exits[1])]})
    rules = [{"name": "by hello", "match": {"paths": ["/hello"]}, "action": {"use": "pool:other"}}]
    made.put("policies", {"name": "by-path", "rules": rules})
    product.data("PATCH", f"/proxies/{proxy['id']}", {"policy": "by-path"})
    assert status(proxy, url) == 200
    wait_until(lambda: ("other", exits[1]["name"]) in parents(product, proxy), "the rule's pool is used")
    product.data("PATCH", "/pools/exits", {"upstreams": []})
    assert status(proxy, origin.url("/other")) == 503
    refused = product.api("DELETE", "/pools/other").json()["error"]["details"]["error"]
    assert "in use by 1 (policy by-path)" in refused
    product.data("PATCH", f"/proxies/{proxy['id']}", {"policy": None, "pool": None})
