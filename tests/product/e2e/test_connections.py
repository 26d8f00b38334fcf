"""Live connections seen and ended over the API."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psutil
import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


def test_a_tunnel_and_a_keep_alive_client_are_listed_and_ended(
    product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    path = f"/proxies/{proxy['id']}/connections"
    with Client(proxy["port"]) as tunnel, Client(proxy["port"]) as plain:
        assert b" 200 " in tunnel.connect(f"127.0.0.1:{origin.port}")
        assert plain.get(origin.url("/hello")).status == 200
        listed = product.data("GET", f"{path}?sort=-age")
        assert listed["total"] == 2
        states = {each["state"]: each for each in listed["connections"]}
        assert states.keys() == {"tunnel", "idle"}
        assert states["idle"]["target"] == f"127.0.0.1:{origin.port}"

        assert product.data("DELETE", f"{path}/{states['tunnel']['id']}")["ended"] is True
        assert tunnel.rest() == b""
        assert product.api("DELETE", f"{path}/{states['tunnel']['id']}").status_code == 404

        assert plain.get(origin.url("/hello")).status == 200
        assert product.data("DELETE", f"{path}?client=127.0.0.1") == {"ended": 1}
        assert plain.rest() == b""
        assert product.data("GET", path) == {"connections": [], "total": 0}
    wait_until(lambda: "ended_by_operator" in _reasons(product, proxy), "the end is recorded")


def test_connections_of_two_proxies_are_one_list_and_a_stopped_process_is_named(
    product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    other = product.proxy(protocol="http")
    with Client(proxy["port"]) as one, Client(other["port"]) as two, Client(other["port"]) as three:
        for each in (one, two, three):
            assert b" 200 " in each.connect(f"127.0.0.1:{origin.port}")
        target = f"target=127.0.0.1:{origin.port}"
        data = product.data("GET", f"/connections?{target}")
        assert Counter(each["proxy"] for each in data["connections"]) == {proxy["name"]: 1, other["name"]: 2}
        assert [each["age"] for each in data["connections"]] == sorted(
            (each["age"] for each in data["connections"]), reverse=True
        )
        groups = product.data("GET", f"/connections?{target}&group_by=proxy")["groups"]
        assert [(each["proxy"], each["count"]) for each in groups] == [(other["name"], 2), (proxy["name"], 1)]

        process = psutil.Process(product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]["pid"])
        process.suspend()
        try:
            data = product.data("GET", f"/connections?{target}")
            assert (data["total"], [each["proxy"] for each in data["unavailable"]]) == (2, [proxy["name"]])
        finally:
            process.resume()
        assert product.data("DELETE", f"/connections?{target}") == {"ended": 3, "unavailable": []}
        assert one.rest() == two.rest() == three.rest() == b""
    product.data("DELETE", f"/proxies/{other['id']}")


def _reasons(product: Product, proxy: dict[str, Any]) -> list[str]:
    return [each["reason"] for each in product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"]]
