"""Settings that are changed through the API while the product runs, and what becomes of them."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
import requests

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


def moved(product: Product, port: int) -> None:
    """The tests' own idea of where the product is follows."""
    product.base_url = f"http://127.0.0.1:{port}"


def refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_the_address_moves_when_the_answer_is_written_and_survives_a_restart(own_product: Product) -> None:
    product = own_product
    old, new = product.port, product.free_port()
    response = product.api("PATCH", "/settings", {"server": {"port": new}})
    assert response.status_code == 200
    assert response.json()["data"]["server"]["port"] == new
    with socket.create_connection(("127.0.0.1", new), 10):
        wait_until(lambda: refused(old), "the old address is closed")
    moved(product, new)
    assert product.data("GET", "/settings")["server"]["port"] == new
    product.actor("api").kill()
    wait_until(lambda: answered(f"{product.base_url}/health"), "the next API is at the new address")
    assert product.stop() == 0
    product.start()  # with the old port on its command line
    assert product.data("GET", "/settings")["server"]["port"] == new
    assert f"server.port is {new} as set through the API; the configuration says {old}" in product.log
    assert refused(old)


def test_an_address_that_can_not_be_had_changes_nothing(product: Product) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        response = product.api("PATCH", "/settings", {"server": {"port": taken}, "logging": {"level": "error"}})
    assert response.status_code == 400
    assert response.json()["error"]["details"]["field"] == "server.port"
    response = product.api("PATCH", "/settings", {"server": {"host": "192.0.2.1"}})
    assert response.json()["error"]["details"]["field"] == "server.host"
    detail = product.data("GET", "/settings")
    assert (detail["server"]["host"], detail["server"]["port"]) == ("127.0.0.1", product.port)
    assert detail["logging"]["level"] == "info"


def test_another_host_at_the_same_port_is_taken_without_a_gap(own_product: Product) -> None:
    product = own_product
    response = product.api("PATCH", "/settings", {"server": {"host": "0.0.0.0"}})
    assert response.status_code == 200, response.text
    product.session.close()
    url = f"http://127.0.0.2:{product.port}/health"
    wait_until(lambda: answered(url), "it listens at all addresses")
    assert product.data("GET", "/settings")["server"]["host"] == "0.0.0.0"


def answered(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code == 200
    except (requests.ConnectionError, requests.Timeout):
        return False


def test_level_format_and_what_is_recorded_hold_at_once_in_all_processes(own_product: Product, origin: Origin) -> None:
    product = own_product
    proxy = product.proxy()

    def fetch(path: str, status: int = 200) -> None:
        with Client(proxy["port"]) as client:
            assert client.get(origin.url(path)).status == status

    def found(path: str) -> list[dict[str, Any]]:
        logs: list[dict[str, Any]] = product.data("GET", f"/logs?search={path}")["logs"]
        return logs

    assert product.api("PATCH", "/settings", {"logging": {"level": "warning", "format": "json"}}).status_code == 200
    fetch("/hello?warning")
    wait_until(lambda: found("warning"), "records don't depend on the level of the log")
    change = {"logging": {"level": "info", "access": "errors"}}
    assert product.api("PATCH", "/settings", change).status_code == 200
    fetch("/hello?errors")
    fetch("/missing?errors", 404)
    product.data("POST", f"/proxies/{proxy['id']}/restart")
    fetch("/hello?restarted")
    assert product.api("PATCH", "/settings", {"logging": {"access": "off"}}).status_code == 200
    fetch("/missing?off", 404)
    assert product.api("PATCH", "/settings", {"logging": {"access": "all"}}).status_code == 200
    fetch("/hello?all")
    wait_until(lambda: found("all"), "all are kept again")
    wait_until(lambda: found("errors"), "errors are kept")
    assert [record["status_code"] for record in found("errors")] == [404]
    assert (found("restarted"), found("off")) == ([], [])
    product.data("POST", f"/proxies/{proxy['id']}/restart")
    lines = wait_until(lambda: json_lines(product.log), "lines are JSON")
    assert {line["level"] for line in lines} == {"info"}


def json_lines(log: str) -> list[dict[str, Any]]:
    """The lines from the first JSON one on; none of them is anything else."""
    lines = log.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith("{")), len(lines))
    return [json.loads(line) for line in lines[begin:]]


def test_limits_of_sign_ins_and_lifetimes_hold_at_once(product: Product) -> None:
    before = product.data("GET", "/settings")["auth"]
    changed = {"auth": {"max_login_attempts": 1, "session_timeout": 77}}
    assert product.data("PATCH", "/settings", changed)["auth"] == {"enabled": True, **changed["auth"]}
    wrong = {"username": "unknown-user", "password": "wrong password"}
    assert product.api("POST", "/auth/login", wrong).status_code == 401
    assert product.api("POST", "/auth/login", wrong).status_code == 429
    product.data("PUT", "/settings", {"auth": before})
    assert product.data("GET", "/settings")["auth"] == before
