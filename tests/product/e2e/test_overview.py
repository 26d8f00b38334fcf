"""The first screen of a running product: real traffic is in it, and a key sees that of its proxies."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.e2e.log_reader import Proxy, get

pytestmark = pytest.mark.product


def test_traffic_is_in_the_overview_of_who_may_see_it(product: Product, proxy: Proxy, origin: Origin) -> None:
    for _ in range(3):
        get(proxy, origin, "?overview")
    path = f"/logs?proxy_id={proxy['id']}"
    wait_until(lambda: len(product.data("GET", path)["logs"]) == 3, "all are found")
    made = product.data("POST", "/api-keys", {"name": "one proxy", "scope": {"proxies": [proxy["id"]]}})
    headers = {"X-API-Key": made["key"]}

    def seen(etag: str = "") -> requests.Response:
        url = f"{product.base_url}/api/v1/overview?range=5m"
        return requests.get(url, headers={**headers, "If-None-Match": etag}, timeout=30)

    data: dict[str, Any] = seen().json()["data"]
    top = data["top"]
    assert [(each["id"], each["name"], each["requests"]) for each in top["proxies"]] == [
        (proxy["id"], proxy["name"], 3)
    ]
    assert [each["host"] for each in top["targets"]] == ["127.0.0.1"]
    assert top["exact"] is True
    assert data["proxies"] == {"total": 1, "by_state": {"running": 1}}
    assert data["attention"]["total"] == 0
    assert data["now"].keys() == data["series"].keys() - {"start", "step"}

    def unchanged() -> bool:
        return seen(seen().headers["ETag"]).status_code == 304

    wait_until(unchanged, "a response that has not changed is 304")
    everything = product.data("GET", "/overview")
    assert everything["proxies"]["total"] >= 1
    assert everything["health"]["version"]
