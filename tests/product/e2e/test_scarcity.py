"""A supervisor without descriptors: no client is refused, nothing ends, and everything comes back by itself."""

from __future__ import annotations

import itertools
import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from actors.supervision.fd_limit import FOR_LISTENERS
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


def lowest_free(process: psutil.Process) -> int:
    """The number of the next descriptor: a limit is on the number, so one above a gap would leave the gap.

    The lowest of many looks: at one of them something may be open for a moment.
    """
    looks = [{int(name) for name in os.listdir(f"/proc/{process.pid}/fd")} for _ in range(50)]
    return min(next(number for number in itertools.count() if number not in taken) for taken in looks)


@contextmanager
def no_descriptors(process: psutil.Process, spare: int = 0) -> Iterator[None]:
    """It can open only so many more than it has, once it has nothing open for a moment only."""
    wait_until(lambda: settled(process), "it opens nothing")
    soft, hard = process.rlimit(resource.RLIMIT_NOFILE)
    process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds() + spare if spare else lowest_free(process), hard))
    try:
        yield
    finally:
        process.rlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_supervisor_out_of_descriptors_refuses_what_needs_one_and_lives_and_makes_up_for_it(
    own_product: Product, origin: Origin
) -> None:
    product, proxy = own_product, own_product.proxy()
    supervisor = psutil.Process(product.pid)
    body = {"name": "late", "port": product.free_port(), "protocol": "http"}
    with no_descriptors(supervisor):
        refused = product.api("POST", "/proxies", body)
        assert refused.status_code == 500, refused.text
        product.actor("zygote").kill()
        wait_until(lambda: "cannot start another zygote" in product.log, "that is tried and fails")
        with Client(proxy["port"]) as client:
            assert client.get(origin.url("/hello")).status == 200
        product.actor("logs").kill()
        wait_until(lambda: "cannot start logs" in product.log or "logs died" in product.log, "its death is seen")
    before = supervisor.num_fds()
    wait_until(lambda: {"zygote", "logs"} <= {each.name() for each in product.processes()}, "they are there again")
    assert product.process is not None
    assert product.process.poll() is None
    assert product.proxy(**body)["runtime"]["state"] == "running"
    assert product.data("GET", "/health")["status"] in ("healthy", "degraded")
    assert supervisor.num_fds() < before + 20


def test_a_supervisor_with_few_descriptors_takes_no_new_listener_so_that_who_died_can_come_back(
    own_product: Product,
) -> None:
    """libzmq would end it, were there none for an actor that connects."""
    product = own_product
    body = {"name": "late", "port": product.free_port(), "protocol": "http"}
    with no_descriptors(psutil.Process(product.pid), FOR_LISTENERS - 10):
        refused = product.api("POST", "/proxies", body)
        assert (refused.status_code, "late" in str(product.data("GET", "/proxies"))) == (500, False)
        for name in ("logs", "api", "metrics"):
            before = product.actor(name)
            before.kill()
            wait_until(lambda name=name, old=before.pid: product.actor(name).pid != old, f"{name} is back")
        product.wait_healthy()
    assert product.proxy(**body)["runtime"]["state"] == "running"


def settled(process: psutil.Process) -> bool:
    """Is nothing open for a moment only, whose descriptor would be to spare afterwards?"""
    end, counts = time.monotonic() + 0.5, set()
    while time.monotonic() < end:
        counts.add(process.num_fds())
    return len(counts) == 1


def test_an_api_without_descriptors_reports_what_it_knows_and_lives(own_product: Product) -> None:
    product = own_product
    product.data("GET", "/health")
    api = product.actor("api")
    with no_descriptors(api):
        report = product.api("GET", "/health")
        assert report.status_code == 200, report.text
        assert report.json()["data"]["checks"]["memory"]["usage"] == "unknown"
        assert product.api("PATCH", "/settings", {"proxy": {"default_timeout": 7}}).status_code == 200
    assert product.data("PATCH", "/settings", {"proxy": {"default_timeout": 8}})["proxy"]["default_timeout"] == 8
    assert product.actor("api").pid == api.pid
    assert "Traceback" not in product.log
