"""`serve --lab`: a first try without an internet."""

from __future__ import annotations

import re
import signal

import pytest

from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


class Lab(Product):
    """Without the exceptions from the guard that tests have else."""

    def __init__(self) -> None:
        super().__init__({"PROXYFLEET_PROXY__EGRESS_ALLOW": "[]"})

    def command(self) -> list[str]:
        return [*super().command(), "--lab"]


def test_a_lab_has_an_origin_that_proxies_reach_and_says_what_is_open() -> None:
    with Lab() as lab:
        found = wait_until(lambda: re.search(r"listens at (http://127\.0\.0\.1:[0-9]+/)", lab.log), "its address")
        url = found[1]
        proxy = lab.proxy()
        with Client(proxy["port"]) as client:
            assert client.get(f"{url}status/418").status == 418
        with Client(proxy["port"]) as client:
            assert client.get(f"{lab.base_url}/api/v1/health").status == 403
        assert lab.log.count("the egress guard is open for loopback") == 2  # the line of the log, and of the greeting
        assert lab.data("GET", "/status")["server"]["lab"] is True
        assert lab.data("GET", "/overview")["health"]["lab"] is True
        exported = lab.data("GET", "/config/export")
        assert "127.0.0.0/8" not in str(exported)
        before = lab.actor("lab").pid
        lab.process.send_signal(signal.SIGHUP)  # the guard stays open
        wait_until(lambda: "the configuration was read again" in lab.log, "it was read again")
        with Client(proxy["port"]) as client:
            assert client.get(url).status == 200
        assert lab.actor("lab").pid == before
