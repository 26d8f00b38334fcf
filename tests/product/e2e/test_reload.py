"""SIGHUP: the configuration is read again, and nothing is dropped."""

from __future__ import annotations

import os
import signal

import pytest

from tests.kit.http_origins import Origin
from tests.kit.live_metrics import live_event
from tests.kit.spare_product import SpareProduct
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product

AFTER = "[auth]\nmax_login_attempts = 1\n[auth.jwt]\naccess_token_ttl = 77\n[server]\ndrain_timeout = 2\n"
LOGIN = {"username": "unknown", "password": "wrong password"}


def test_a_bad_file_changes_nothing_and_is_named(own_product: SpareProduct) -> None:
    own_product.configure("[server]\ndrain_timeout = 'x'\n")
    os.kill(own_product.pid, signal.SIGHUP)
    wait_until(lambda: "server.drain_timeout" in own_product.log, "the bad key is named")
    assert own_product.api("GET", "/health").status_code == 200


def test_a_reload_that_took_effect_is_an_event_with_the_keys_that_wait_for_a_restart(own_product: SpareProduct) -> None:
    own_product.configure(AFTER + "[telemetry.otlp]\ninterval = 60\n")
    event = live_event(own_product, "settings.reloaded", own_product.reload)
    assert event["data"] == {"needs_restart": ["telemetry"]}


def test_lifetimes_and_limits_follow_while_connections_live(own_product: SpareProduct, origin: Origin) -> None:
    proxy = own_product.proxy()
    assert own_product.api("POST", "/auth/login", LOGIN).status_code == 401
    with Client(proxy["port"]) as client:
        assert client.get(origin.url("/hello")).body == b"hello"
        own_product.configure(AFTER)
        own_product.reload()
        assert client.get(origin.url("/hello")).body == b"hello"
    wait_until(lambda: own_product.api("POST", "/auth/login", LOGIN).status_code == 429, "the pair is locked")
