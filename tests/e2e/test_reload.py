"""SIGHUP: the configuration is read again, and nothing is dropped."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.kit.http_origins import Origin
from tests.kit.live_metrics import live_event
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product

BEFORE = "[auth]\nmax_login_attempts = 50\n[auth.jwt]\naccess_token_ttl = 3600\n"
AFTER = "[auth]\nmax_login_attempts = 1\n[auth.jwt]\naccess_token_ttl = 77\n[server]\ndrain_timeout = 2\n"


def test_lifetimes_and_limits_follow_while_connections_live(origin: Origin, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(BEFORE)
    with Product(env={"PROXYFLEET_CONFIG": str(file)}) as product:
        proxy = product.proxy()
        login = {"username": "admin", "password": "wrong password"}
        assert product.api("POST", "/auth/login", login).status_code == 401
        with Client(proxy["port"]) as client:
            assert client.get(origin.url("/hello")).body == b"hello"
            file.write_text(AFTER)
            assert product.process is not None
            os.kill(product.process.pid, signal.SIGHUP)
            wait_until(lambda: "read again" in product.log, "the configuration was read again")
            assert client.get(origin.url("/hello")).body == b"hello"
        wait_until(lambda: product.api("POST", "/auth/login", login).status_code == 429, "the pair is locked")


def test_a_bad_file_changes_nothing_and_is_named(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(BEFORE)
    with Product(env={"PROXYFLEET_CONFIG": str(file)}) as product:
        file.write_text("[server]\ndrain_timeout = 'x'\n")
        assert product.process is not None
        os.kill(product.process.pid, signal.SIGHUP)
        wait_until(lambda: "server.drain_timeout" in product.log, "the bad key is named")
        assert product.api("GET", "/health").status_code == 200


def test_a_reload_that_took_effect_is_an_event_with_the_keys_that_wait_for_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(BEFORE)
    with Product(env={"PROXYFLEET_CONFIG": str(file)}) as product:
        assert product.process is not None
        pid = product.process.pid
        file.write_text(AFTER + "[telemetry.otlp]\ninterval = 60\n")
        event = live_event(product, "settings.reloaded", lambda: os.kill(pid, signal.SIGHUP))
        assert event["data"] == {"needs_restart": ["telemetry"]}
