"""One pool and several proxies, as real processes: checks are made once, and what one proxy learns holds for all."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
import zmq

from actors.bus.codec import decode
from actors.bus.messages.events import Event
from tests.kit.product import Product
from tests.kit.upstream_farm import Farm
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product

TARGET = "target.example:443"
LONG = {"connect": [600, 600], "407": [600, 600], "429": [600, 600], "5xx": [600, 600]}
NO_CHECKS = {"enabled": False}
NUMBERS = count()

Made = tuple[str, list[dict[str, Any]]]
"""The name of a pool, and its proxies."""


@pytest.fixture
def farm() -> Iterator[Farm]:
    with Farm(3) as farm:
        yield farm


@pytest.fixture
def make(product: Product) -> Iterator[Callable[..., Made]]:
    """Makes pools with proxies, which are deleted after the test."""
    with ExitStack() as deleting:

        def made(farm: Farm, proxies: int = 2, **fields: Any) -> Made:
            name = f"pool-{os.getpid()}-{next(NUMBERS)}"
            product.data("POST", "/pools", {"name": name, "upstreams": farm.entries(), **fields})
            deleting.callback(product.api, "DELETE", f"/pools/{name}")
            using = [product.proxy(pool=name) for _ in range(proxies)]
            for each in using:
                deleting.callback(product.api, "DELETE", f"/proxies/{each['id']}")
            return name, using

        yield made


def upstreams(product: Product, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = product.data("GET", f"/pools/{name}")["pool"]["status"]["upstreams"]
    return found


def tunnel(proxy: dict[str, Any]) -> bytes:
    """The head of the response to CONNECT."""
    with Client(proxy["port"]) as client:
        return client.connect(TARGET)


def checking(product: Product) -> int | None:
    """The process of the checks."""
    found = [each.pid for each in product.processes() if each.name() == "pools"]
    return found[0] if found else None


def test_the_checks_of_many_proxies_are_those_of_one(product: Product, farm: Farm, make: Callable[..., Made]) -> None:
    name, _ = make(farm, 4, check={"interval": 1})
    wait_until(lambda: all(each["checks"] >= 3 for each in upstreams(product, name)), "three checks of each")
    connections = dict(farm.connections)
    for port, shown in zip(farm.ports, upstreams(product, name), strict=True):
        assert shown["state"] == "up"
        assert connections[port] <= shown["checks"] + 1, "no proxy has connected to it"


def test_what_one_proxy_finds_out_the_other_need_not(product: Product, farm: Farm, make: Callable[..., Made]) -> None:
    name, (one, other) = make(farm, check=NO_CHECKS, cooldown=LONG)
    dead, busy, good = farm.ports
    farm.close(dead)
    farm.status[busy] = "429 Too Many Requests"
    assert b" 200 " in tunnel(one)
    assert farm.requests == {busy: 1, good: 1}
    farm.open(dead)  # it would be used again by a proxy that does not know
    farm.status.clear()
    assert b" 200 " in tunnel(other)
    assert farm.requests == {busy: 1, good: 2}
    shown = upstreams(product, name)
    assert [each["state"] for each in shown] == ["down", "unknown", "up"]
    assert [each["cooldown"] for each in shown] == ["connect", "429", None]


def test_a_reported_upstream_is_used_by_no_proxy_until_it_is_good(
    product: Product, farm: Farm, make: Callable[..., Made]
) -> None:
    name, proxies = make(farm, check=NO_CHECKS, cooldown=LONG)
    path, first = f"/pools/{name}/upstreams/up0/report", farm.ports[0]
    product.data("POST", path, {"verdict": "bad", "seconds": 600})
    for proxy in proxies:
        assert b" 200 " in tunnel(proxy)
    assert farm.requests[first] == 0
    product.data("POST", path, {"verdict": "good"})
    for proxy in proxies:
        assert b" 200 " in tunnel(proxy)
    assert farm.requests[first] == 2


def test_an_upstream_that_is_down_is_one_event(product: Product, farm: Farm, make: Callable[..., Made]) -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as events:
        events.linger = 0
        events.connect(f"ipc://{product.run_dir}/events.out")
        for kind in ("upstream.", "pool.down", "pool.up", "proxy.error"):
            events.subscribe(f"events.{kind}")
        port = farm.ports[1]
        farm.close(port)
        name, proxies = make(farm, 3, check={"interval": 1}, cooldown={"connect": [0.1, 0.2]})
        wait_until(lambda: upstreams(product, name)[1]["state"] == "down", "the check has failed")
        ids = {each["id"] for each in proxies}
        first = _event(events, name, ids)
        for proxy in proxies:
            assert b" 200 " in tunnel(proxy)
        farm.open(port)
        second = _event(events, name, ids)
    assert (first.type, first.data["upstream"]) == ("upstream.down", "up1")
    assert (second.type, second.data["upstream"]) == ("upstream.up", "up1")


def test_without_the_process_of_the_checks_proxies_go_on_and_it_comes_back(
    product: Product, farm: Farm, make: Callable[..., Made]
) -> None:
    name, proxies = make(farm, check={"interval": 1}, cooldown=LONG)
    wait_until(lambda: all(each["state"] == "up" for each in upstreams(product, name)), "all upstreams are up")
    product.data("POST", f"/pools/{name}/upstreams/up0/report", {"verdict": "bad"})
    killed = checking(product)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    for proxy in proxies:
        assert b" 200 " in tunnel(proxy)
    assert farm.requests[farm.ports[0]] == 0, "the ban holds"
    wait_until(lambda: checking(product) not in (None, killed), "another process checks")
    before = [each["checks"] for each in upstreams(product, name)]
    wait_until(
        lambda: all(now["checks"] > then for now, then in zip(upstreams(product, name), before, strict=True)),
        "further checks",
    )
    assert upstreams(product, name)[0]["banned_until"] is not None


def _event(events: zmq.Socket[bytes], pool: str, proxies: set[str]) -> Event:
    """The next event about this pool or its upstreams; there is none about its proxies."""
    while True:
        assert events.poll(30_000), "an event"
        message = decode(events.recv_multipart()[1]).message
        assert isinstance(message, Event)
        assert message.data.get("proxy_id") not in proxies, message.data
        if message.data.get("pool") == pool:
            return message
