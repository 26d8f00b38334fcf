"""Live connections seen and ended over the API."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


def test_a_tunnel_and_a_keep_alive_client_are_listed_and_ended_within_a_second(
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

        began = time.monotonic()
        assert product.data("DELETE", f"{path}/{states['tunnel']['id']}")["ended"] is True
        assert tunnel.rest() == b""
        assert time.monotonic() - began < 1.0
        assert product.api("DELETE", f"{path}/{states['tunnel']['id']}").status_code == 404

        assert plain.get(origin.url("/hello")).status == 200
        assert product.data("DELETE", f"{path}?client=127.0.0.1") == {"ended": 1}
        assert plain.rest() == b""
        assert product.data("GET", path) == {"connections": [], "total": 0}
    wait_until(lambda: "ended_by_operator" in _reasons(product, proxy), "the end is recorded", 10)


def _reasons(product: Product, proxy: dict[str, Any]) -> list[str]:
    return [each["reason"] for each in product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"]]
