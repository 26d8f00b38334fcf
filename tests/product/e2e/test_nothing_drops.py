"""While callers connect anew all the time, whatever an operator changes: none is refused and no request fails."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from config.settings.runtime import FIXED
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.steady_load import Knocking, by_tunnel, of_api, through_proxy
from tests.kit.wait import wait_until

pytestmark = pytest.mark.product

OF_SETTINGS: list[dict[str, Any]] = [
    {"server": {"max_connections": 900}},
    {"logging": {"level": "warning"}},
    {"logging": {"format": "json"}},
    {"logging": {"level": "info", "format": "text"}},
    {"logging": {"access": "errors"}},
    {"logging": {"access": "all"}},
    {"logging": {"output": "stdout"}},
    {"logging": {"output": "stderr"}},
    {"auth": {"session_timeout": 1800, "max_login_attempts": 7}},
    {"proxy": {"default_timeout": 20, "keep_alive_timeout": 30, "max_idle_connections": 0, "dns_cache_seconds": 60}},
    {"proxy": {"sleep_after": 600}},
    {"proxy": {"policy": "everywhere"}},
    {"proxy": {"public_name": "proxy.example.com"}},
    {"history": {"max_revisions": 5_000, "retention_days": 30}},
]
OF_A_PROXY: list[dict[str, Any]] = [
    {"settings": {"max_connections": 500, "timeout": 25, "keep_alive": False}},
    {"tags": ["changed"], "name": "another name"},
    {"limits": {"bandwidth_in": 50_000_000, "connections_per_client": 1_000}},
    {"access": {"allow_clients": ["127.0.0.0/8"], "mode": "report"}},
    {"access": {"deny_destinations": ["*.example"], "mode": "enforce"}},
]


@pytest.fixture
def changed(own_product: Product) -> Product:
    return own_product


@pytest.fixture
def proxy(changed: Product) -> dict[str, Any]:
    return changed.proxy()


def knocking_at(product: Product, proxy: dict[str, Any], origin: Origin) -> Knocking:
    url = origin.url("/hello")
    port = proxy["port"]
    return Knocking(through_proxy(port, url), by_tunnel(port, url.split("/")[2]), of_api(product.port))


def test_every_setting_is_changed_without_a_drop(changed: Product, proxy: dict[str, Any], origin: Origin) -> None:
    changed.data("POST", "/policies", {"name": "everywhere", "rules": []})
    known = {(group, key) for group, keys in changed.data("GET", "/settings").items() for key in keys}
    tried = {(group, key) for body in OF_SETTINGS for group, keys in body.items() for key in keys}
    with knocking_at(changed, proxy, origin) as knocking:
        for body in OF_SETTINGS:
            changed.data("PATCH", "/settings", body)
            knocking.wait_for_more(1)
    assert knocking.failures == []
    assert known - tried == FIXED.keys(), "a new setting is to be tried here, too"


def test_what_can_not_be_changed_is_refused_without_a_drop(
    changed: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    now = changed.data("GET", "/settings")
    with knocking_at(changed, proxy, origin) as knocking:
        for group, key in FIXED:
            response = changed.api("PATCH", "/settings", {group: {key: not now[group][key]}})
            assert response.status_code == 400
            knocking.wait_for_more(1)
    assert knocking.failures == []


def test_a_proxy_is_changed_and_restarted_without_a_drop(
    changed: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    with knocking_at(changed, proxy, origin) as knocking:
        for body in OF_A_PROXY:
            changed.data("PATCH", f"/proxies/{proxy['id']}", body)
            knocking.wait_for_more(1)
        changed.data("POST", f"/proxies/{proxy['id']}/restart")
        knocking.wait_for_more()
    assert knocking.failures == []


def test_the_configuration_is_read_again_without_a_drop(
    changed: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    received = changed.log.count("the configuration was read again")
    with knocking_at(changed, proxy, origin) as knocking:
        for number in (1, 2, 3):
            os.kill(changed.pid, signal.SIGHUP)
            wait_until(
                lambda: changed.log.count("the configuration was read again") >= received + number,  # noqa: B023
                "it was read again",
            )
        knocking.wait_for_more()
    assert knocking.failures == []


def test_other_proxies_come_and_go_without_a_drop(changed: Product, proxy: dict[str, Any], origin: Origin) -> None:
    with knocking_at(changed, proxy, origin) as knocking:
        for _ in range(3):
            other = changed.proxy()
            changed.data("POST", f"/proxies/{other['id']}/stop")
            changed.data("DELETE", f"/proxies/{other['id']}")
    assert knocking.failures == []
