"""The life of a proxy as an operator sees it: create, stop, start, restart, update, test, delete."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from actors.compiled import runs_compiled
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


def detail(product: Product, proxy: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]
    return found


def running(product: Product, proxy: dict[str, Any], other_than: int | None = None) -> dict[str, Any]:
    """The detail form once it runs (in another process than that one)."""

    def poll() -> dict[str, Any] | None:
        view = detail(product, proxy)
        runtime = view["runtime"]
        return view if runtime["state"] == "running" and runtime["pid"] != other_than else None

    return wait_until(poll, f"proxy {proxy['name']} runs")


def refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_it_runs_the_modules_of_the_tests_and_says_whether_they_are_compiled(product: Product) -> None:
    assert product.data("GET", "/version")["compiled"] is runs_compiled()
    assert product.data("GET", "/status")["server"]["compiled"] is runs_compiled()


def test_a_new_proxy_accepts_before_the_answer_to_create_is_out(product: Product, origin: Origin) -> None:
    port = product.free_port()
    made = product.data("POST", "/proxies", {"name": f"at-once-{port}", "port": port, "protocol": "http"})["proxy"]
    with Client(port) as client:
        assert client.get(origin.url("/hello")).status == 200
    assert made["status"] == "active"
    product.data("DELETE", f"/proxies/{made['id']}")


def test_who_creates_starts_or_restarts_a_proxy_may_ask_its_process_at_once(product: Product, origin: Origin) -> None:
    """On one kept connection, without a pause."""
    for number in range(5):
        body = {"name": f"asked-{number}", "port": product.free_port(), "protocol": "http"}
        path = f"/proxies/{product.data('POST', '/proxies', body)['proxy']['id']}"
        for operation in (None, "restart", "stop", "start")[: 4 if number == 0 else 1]:
            if operation is not None:
                product.data("POST", f"{path}/{operation}")
            assert product.data("GET", f"{path}/connections") == {"connections": [], "total": 0}
            result = product.data("POST", f"{path}/test", {"url": origin.url("/hello")})["test_result"]
            assert (result["status"] == "success") is (operation != "stop"), result
            view = product.data("GET", path)["proxy"]["runtime"]["state"]
            assert view in (("stopped", "draining") if operation == "stop" else ("running",))
        product.data("DELETE", path)


def test_stop_closes_the_listener_and_start_opens_it_again(
    product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    stopped = product.data("POST", f"/proxies/{proxy['id']}/stop")
    assert (stopped["changed"], stopped["proxy"]["status"]) == (True, "inactive")
    wait_until(lambda: refuses(proxy["port"]), "the listener is closed")
    assert product.data("POST", f"/proxies/{proxy['id']}/stop")["changed"] is False
    started = product.data("POST", f"/proxies/{proxy['id']}/start")
    assert (started["changed"], started["proxy"]["status"]) == (True, "active")
    with Client(proxy["port"]) as client:
        assert client.get(origin.url("/hello")).status == 200
    running(product, proxy)
    assert product.data("POST", f"/proxies/{proxy['id']}/start")["changed"] is False


def test_the_test_of_a_proxy_goes_through_it_and_tells_the_outer_address(
    product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    result = product.data("POST", f"/proxies/{proxy['id']}/test", {"url": origin.url("/ip")})["test_result"]
    assert (result["status"], result["status_code"], result["external_ip"]) == ("success", 200, "192.0.2.7")
    assert result["response_time"] >= 0


def test_delete_closes_the_listener_and_forgets_the_proxy(product: Product, proxy: dict[str, Any]) -> None:
    assert product.data("DELETE", f"/proxies/{proxy['id']}") == {"id": proxy["id"], "deleted": True}
    assert product.api("GET", f"/proxies/{proxy['id']}").status_code == 404
    wait_until(lambda: refuses(proxy["port"]), "the listener is closed")
    again = product.proxy(port=proxy["port"])
    product.data("DELETE", f"/proxies/{again['id']}")
