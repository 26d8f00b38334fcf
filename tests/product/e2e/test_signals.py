"""Signals to the whole process group, as from Ctrl-C, `timeout` and service managers, and to one process alone."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.e2e.log_reader import get

pytestmark = pytest.mark.product

REQUESTS = 20


@pytest.fixture
def grouped(own_product: Product) -> Product:
    """A product that is a process group of its own."""
    return own_product


@pytest.fixture
def proxy(grouped: Product) -> dict[str, Any]:
    return grouped.proxy()


def records(product: Product, proxy: dict[str, Any]) -> int:
    total: int = product.data("GET", f"/logs?proxy_id={proxy['id']}")["total"]
    return total


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_a_signal_to_the_group_ends_all_in_good_order_and_loses_no_record(
    grouped: Product, proxy: dict[str, Any], origin: Origin, number: signal.Signals, times: int
) -> None:
    so_far = len(grouped.log)
    for _ in range(REQUESTS):
        assert get(proxy, origin, "hello") == 200
    assert grouped.process is not None
    for _ in range(times):  # `timeout` sends it to its child, and then to the group
        os.killpg(grouped.pid, number)
    assert grouped.process.wait(60) == 0
    reported = grouped.log[so_far:]
    assert [line for line in reported.splitlines() if "ERROR" in line or "died" in line or "WARNING" in line] == []
    assert "Traceback" not in reported
    grouped.start()
    wait_until(lambda: records(grouped, proxy) == REQUESTS, "all records are there")


def test_a_hang_up_of_the_group_is_a_reload_and_ends_no_one(
    grouped: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    so_far, before = len(grouped.log), {each.pid for each in grouped.lasting()}
    for _ in range(3):
        os.killpg(grouped.pid, signal.SIGHUP)
    wait_until(lambda: "was read again" in grouped.log[so_far:], "the configuration is read again")
    assert get(proxy, origin, "hello") == 200
    assert {each.pid for each in grouped.lasting()} == before
    assert "died" not in grouped.log[so_far:]


@pytest.mark.parametrize("name", ["forwarding", "api"])
def test_one_process_ends_by_a_signal_of_its_own_and_is_started_again(
    grouped: Product, proxy: dict[str, Any], origin: Origin, name: str
) -> None:
    assert get(proxy, origin, "hello") == 200
    so_far = len(grouped.log)
    older = proxy["runtime"]["pid"] if name == "forwarding" else grouped.actor(name).pid
    os.kill(older, signal.SIGTERM)
    wait_until(lambda: older not in {each.pid for each in grouped.lasting()}, "it has ended")
    grouped.wait_healthy()
    wait_until(lambda: get(proxy, origin, "hello") == 200, "the proxy serves")
    wait_until(lambda: records(grouped, proxy) >= 2, "both records are there")
    assert f"was terminated by SIGTERM, starting it again: process {older} " in grouped.log[so_far:]
    assert "died" not in grouped.log[so_far:]
