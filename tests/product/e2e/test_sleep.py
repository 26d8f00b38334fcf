"""A proxy that sleeps has no process, and no client can tell."""

from __future__ import annotations

import socket
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product

MANY = 20
"""More than the zygote makes at a time."""
LONG = 10_000
"""Seconds: one that is awake stays so."""


def runtime(product: Product, proxy: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]
    return found


def asleep(product: Product, proxy: dict[str, Any]) -> dict[str, Any]:
    """The proxy once it sleeps."""

    def poll() -> dict[str, Any] | None:
        found: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]
        return found if found["runtime"]["state"] == "sleeping" else None

    return wait_until(poll, "it sleeps")


def status(proxy: dict[str, Any], origin: Origin) -> int:
    with Client(proxy["port"]) as client:
        return client.get(origin.url("/hello")).status


def changed(product: Product, proxy: dict[str, Any], sleep_after: int, **more: Any) -> None:
    product.data("PATCH", f"/proxies/{proxy['id']}", {"sleep_after": sleep_after, **more})


@pytest.fixture
def proxy(product: Product) -> Iterator[dict[str, Any]]:
    """One that sleeps after a second."""
    made = product.proxy(sleep_after=1)
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


def test_it_sleeps_without_clients_and_serves_the_first_one_that_comes(
    product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    for _ in range(2):
        assert status(proxy, origin) == 200
        found = asleep(product, proxy)
        assert (found["status"], found["runtime"]["pid"], found["runtime"]["error"]) == ("active", None, None)
        assert product.data("GET", "/health")["status"] == "healthy"
    changed(product, proxy, LONG)
    assert status(proxy, origin) == 200
    wait_until(lambda: runtime(product, proxy)["pid"] is not None, "it has a process")

    def counted() -> bool:
        stats = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["stats"]
        logs = product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"]
        return (stats["total_requests"], len(logs)) == (3, 3)

    wait_until(counted, "totals and records of all three requests")


def test_requests_of_before_count_after_it(product: Product, proxy: dict[str, Any], origin: Origin) -> None:
    product.data("PATCH", f"/proxies/{proxy['id']}", {"limits": {"requests_per_minute": 3}})
    assert [status(proxy, origin) for _ in range(2)] == [200, 200]
    asleep(product, proxy)
    assert [status(proxy, origin) for _ in range(2)] == [200, 429]


def test_what_an_operator_does_while_it_sleeps(product: Product, proxy: dict[str, Any], origin: Origin) -> None:
    path = f"/proxies/{proxy['id']}"
    asleep(product, proxy)
    changed(product, proxy, LONG, access={"deny_destinations": ["127.0.0.1"]})
    assert runtime(product, proxy)["state"] == "sleeping"
    assert status(proxy, origin) == 403
    changed(product, proxy, 1, access={"deny_destinations": []})
    for operation in ("restart", "start"):
        asleep(product, proxy)
        changed(product, proxy, LONG)
        product.data("POST", f"{path}/{operation}")
        assert runtime(product, proxy)["state"] == "running"
        assert status(proxy, origin) == 200
        changed(product, proxy, 1)
    asleep(product, proxy)
    product.data("POST", f"{path}/stop")
    assert runtime(product, proxy)["state"] == "stopped"
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", proxy["port"])) != 0
    changed(product, proxy, 1, port=product.free_port())
    product.data("POST", f"{path}/start")
    assert status(asleep(product, proxy), origin) == 200
    asleep(product, proxy)
    changed(product, proxy, 0)
    wait_until(lambda: runtime(product, proxy)["state"] == "running", "it may not sleep any more")


def test_explain_wakes_none_and_knows_what_accounts_have_used(
    product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    account = {"username": "ann", "password": "correct horse", "quota": {"bytes": 1}}
    changed(product, proxy, 1, accounts=[account])
    with Client(proxy["port"]) as client:
        secret = b64encode(b"ann:correct horse").decode()
        assert client.get(origin.url("/hello"), f"Proxy-Authorization: Basic {secret}").status == 200
    asleep(product, proxy)
    question = {"client_ip": "127.0.0.1", "target": origin.url("/hello"), "user": "ann"}
    for _ in range(3):
        said = product.data("POST", f"/proxies/{proxy['id']}/explain", question)
        assert (said["decision"], "quota of this account" in said["rule"]) == ("deny", True)
    assert runtime(product, proxy)["state"] == "sleeping"


def test_several_workers_sleep_together_and_count_on(product: Product, origin: Origin) -> None:
    proxy = product.proxy(sleep_after=1, workers=2, limits={"requests_per_minute": 4})
    try:
        for _ in range(2):
            assert status(proxy, origin) == 200
            assert asleep(product, proxy)["runtime"]["workers"] == []
        result = product.data("POST", f"/proxies/{proxy['id']}/test", {"url": origin.url("/hello")})["test_result"]
        assert (result["status"], result["status_code"]) == ("success", 200)
        asleep(product, proxy)
        assert [status(proxy, origin) for _ in range(3)].count(200) <= 2
        assert product.data("GET", f"/proxies/{proxy['id']}/connections")["total"] == 0
    finally:
        product.api("DELETE", f"/proxies/{proxy['id']}")


def test_there_are_no_connections_and_upstreams_are_unknown(product: Product, proxy: dict[str, Any]) -> None:
    path = f"/proxies/{proxy['id']}"
    changed(product, proxy, 1, upstreams=["http://127.0.0.1:9"])
    asleep(product, proxy)
    assert product.data("GET", f"{path}/connections")["total"] == 0
    assert product.data("DELETE", f"{path}/connections?all=true")["ended"] == 0
    assert product.data("GET", "/connections")["unavailable"] == []
    assert product.data("GET", path)["proxy"]["runtime"].get("upstreams") is None


def test_many_that_are_woken_at_once_all_serve(product: Product, origin: Origin) -> None:
    made = [
        product.data(
            "POST",
            "/proxies",
            {
                "name": f"crowd-{number}-{(port := product.free_port())}",
                "port": port,
                "protocol": "http",
                "sleep_after": 1,
            },
        )["proxy"]
        for number in range(MANY)
    ]
    try:
        for each in made:
            asleep(product, each)
        with ThreadPoolExecutor(MANY) as pool:
            assert list(pool.map(lambda each: status(each, origin), made)) == [200] * MANY
    finally:
        for each in made:
            product.api("DELETE", f"/proxies/{each['id']}")


def test_it_sleeps_on_through_a_restart_of_the_product_and_begins_asleep(own_product: Product, origin: Origin) -> None:
    proxy = own_product.proxy(sleep_after=1)
    asleep(own_product, proxy)
    assert own_product.stop() == 0
    own_product.start()
    assert runtime(own_product, proxy)["state"] == "sleeping"
    assert status(proxy, origin) == 200
