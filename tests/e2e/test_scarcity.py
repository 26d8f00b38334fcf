"""A supervisor without descriptors: nobody is refused, nothing ends, and everything comes back by itself."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.e2e.origins import Origin
from tests.e2e.wire import Client
from tests.product import Product
from tests.waiting import wait_until

pytestmark = pytest.mark.product


@contextmanager
def no_descriptors(process: psutil.Process) -> Iterator[None]:
    """It can open none but those that it closes."""
    soft, hard = process.rlimit(resource.RLIMIT_NOFILE)
    process.rlimit(resource.RLIMIT_NOFILE, (process.num_fds(), hard))
    yield
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
        wait_until(lambda: "another zygote can't be started" in product.log, "that is tried and fails")
        with Client(proxy["port"]) as client:
            assert client.get(origin.url("/hello")).status == 200
        product.actor("logs").kill()
        wait_until(lambda: "logs can't be started" in product.log or "logs died" in product.log, "its death is seen")
    before = supervisor.num_fds()
    wait_until(lambda: {"zygote", "logs"} <= {each.name() for each in product.processes()}, "they are there again", 40)
    assert product.process is not None
    assert product.process.poll() is None
    assert product.proxy(**body)["runtime"]["state"] == "running"
    assert product.data("GET", "/health")["status"] in ("healthy", "degraded")
    assert supervisor.num_fds() < before + 20
