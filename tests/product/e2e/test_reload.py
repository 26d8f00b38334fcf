"""SIGHUP: the configuration is read again, and nothing is dropped."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
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


class Reloaded(Product):
    """A product with a configuration file, to be read again."""

    def __init__(self, file: Path) -> None:
        super().__init__(env={"PROXYFLEET_CONFIG": str(file)})
        self.file = file
        file.write_text(BEFORE)

    def reload(self) -> None:
        """Send SIGHUP."""
        os.kill(self.pid, signal.SIGHUP)


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reloaded]:
    with Reloaded(tmp_path_factory.mktemp("configuration") / "fleet.toml") as running:
        yield running


def test_a_bad_file_changes_nothing_and_is_named(reloaded: Reloaded) -> None:
    reloaded.file.write_text("[server]\ndrain_timeout = 'x'\n")
    reloaded.reload()
    wait_until(lambda: "server.drain_timeout" in reloaded.log, "the bad key is named")
    assert reloaded.api("GET", "/health").status_code == 200


def test_a_reload_that_took_effect_is_an_event_with_the_keys_that_wait_for_a_restart(reloaded: Reloaded) -> None:
    reloaded.file.write_text(AFTER + "[telemetry.otlp]\ninterval = 60\n")
    event = live_event(reloaded, "settings.reloaded", reloaded.reload)
    assert event["data"] == {"needs_restart": ["telemetry"]}
    reloaded.file.write_text(BEFORE)
    live_event(reloaded, "settings.reloaded", reloaded.reload)


def test_lifetimes_and_limits_follow_while_connections_live(reloaded: Reloaded, origin: Origin) -> None:
    """The last one, since it locks the sign-in of the administrator."""
    proxy = reloaded.proxy()
    login = {"username": "admin", "password": "wrong password"}
    assert reloaded.api("POST", "/auth/login", login).status_code == 401
    with Client(proxy["port"]) as client:
        assert client.get(origin.url("/hello")).body == b"hello"
        reloaded.file.write_text(AFTER)
        before = reloaded.log.count("read again")
        reloaded.reload()
        wait_until(lambda: reloaded.log.count("read again") > before, "the configuration was read again")
        assert client.get(origin.url("/hello")).body == b"hello"
    wait_until(lambda: reloaded.api("POST", "/auth/login", login).status_code == 429, "the pair is locked")
