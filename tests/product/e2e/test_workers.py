"""A proxy with several workers in a running product: it is one proxy, whichever worker a client meets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.steady_load import Knocking, by_tunnel, through_proxy
from tests.kit.wait import wait_until
from tests.kit.wire import Client
from tests.kit.workers import all_run, detail

pytestmark = pytest.mark.product


@pytest.fixture
def workers(product: Product) -> Iterator[dict[str, Any]]:
    """A proxy with two workers, which both run."""
    made = product.proxy(workers=2)
    all_run(product, made, 2)
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


def opened(proxy: dict[str, Any], origin: Origin) -> Client | None:
    """A tunnel; None when it was refused."""
    client = Client(proxy["port"])
    try:
        if b" 200 " in client.connect(f"127.0.0.1:{origin.port}"):
            return client
    except (OSError, AssertionError):
        client.socket.close()
        return None
    client.socket.close()
    return None


def listed(product: Product, proxy: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = product.data("GET", f"/proxies/{proxy['id']}/connections?limit=1000")["connections"]
    return found


def spread(product: Product, proxy: dict[str, Any], origin: Origin, stack: ExitStack) -> int:
    """Open tunnels until each of two workers has one; how many there are. Ids end with what a process is known by."""
    for count in range(1, 101):
        client = opened(proxy, origin)
        assert client is not None
        stack.enter_context(client)
        if len({each["id"][-8:] for each in listed(product, proxy)}) == 2:
            return count
    raise AssertionError("100 tunnels have met the same worker")


def test_the_connections_of_both_workers_are_listed_and_ended(
    product: Product, workers: dict[str, Any], origin: Origin
) -> None:
    with ExitStack() as stack:
        count = spread(product, workers, origin, stack)
        assert product.data("GET", f"/connections?proxy={workers['id']}")["total"] == count
        one, *_rest = listed(product, workers)
        assert product.data("DELETE", f"/proxies/{workers['id']}/connections/{one['id']}")["ended"]
        assert product.data("DELETE", f"/proxies/{workers['id']}/connections?all=true") == {"ended": count - 1}
    wait_until(lambda: not listed(product, workers), "all are gone")


def test_every_test_and_explanation_works_whichever_worker_it_meets(
    product: Product, workers: dict[str, Any], origin: Origin
) -> None:
    for _ in range(10):
        result = product.data("POST", f"/proxies/{workers['id']}/test", {"url": origin.url("/hello")})["test_result"]
        assert (result["status"], result["status_code"]) == ("success", 200), result
    question = {"client_ip": "127.0.0.1", "target": origin.url("/hello")}
    assert product.data("POST", f"/proxies/{workers['id']}/explain", question)["decision"] == "allow"


def test_a_restart_and_another_number_of_workers_refuse_and_cut_nothing(
    product: Product, workers: dict[str, Any], origin: Origin
) -> None:
    url = origin.url("/hello")
    before = all_run(product, workers, 2)
    with Knocking(through_proxy(workers["port"], url), by_tunnel(workers["port"], url.split("/")[2])) as knocking:
        product.data("POST", f"/proxies/{workers['id']}/restart")
        wait_until(lambda: not set(before) & set(all_run(product, workers, 2)), "both are replaced")
        for count in (3, 1):
            assert product.data("PATCH", f"/proxies/{workers['id']}", {"workers": count})["proxy"]["workers"] == count
            all_run(product, workers, count)
            knocking.wait_for_more()
    assert knocking.failures == []
    stats = wait_until(lambda: counted(product, workers, sum(knocking.counts)), "every request is counted once")
    assert stats["errors"] == 0


def counted(product: Product, proxy: dict[str, Any], requests: int) -> dict[str, Any] | None:
    stats: dict[str, Any] = detail(product, proxy)["stats"]
    return stats if stats["total_requests"] == requests else None
