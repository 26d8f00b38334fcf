"""Settings that are changed through the API while the product runs, and what becomes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


def test_the_address_changes_with_a_restart_alone_and_a_request_for_another_changes_nothing(product: Product) -> None:
    for name, value in {"port": product.free_port(), "host": "0.0.0.0"}.items():
        response = product.api("PATCH", "/settings", {"server": {name: value}, "logging": {"level": "error"}})
        assert response.status_code == 400
        details = response.json()["error"]["details"]
        assert details["field"] == f"server.{name}"
        assert "change it in the configuration, and restart" in details["error"]
    found = product.data("GET", "/settings")
    assert (found["server"]["host"], found["server"]["port"]) == ("127.0.0.1", product.port)
    assert found["logging"]["level"] == "info"


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
