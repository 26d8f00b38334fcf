"""Processes that die by SIGKILL: what goes on meanwhile, and how soon everything is back."""

from __future__ import annotations

import random
import socket
import threading
from http.client import HTTPException
from typing import Any, Self

import psutil
import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.e2e.fetching import fetched, healthy

pytestmark = pytest.mark.product

PATIENCE = 20.0
"""What a loaded test machine may take longer than promised, as a factor."""


def state(product: Product, proxy: dict[str, Any]) -> dict[str, Any]:
    runtime: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]
    return runtime


class Load:
    """Clients that come all the time; `refused` counts those that could not connect, `answered` those served."""

    def __init__(self, proxy: dict[str, Any], origin: Origin, clients: int = 4) -> None:
        self.refused = self.answered = 0
        self._proxy, self._origin = proxy, origin
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(120)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                served = fetched(self._proxy, self._origin)
            except ConnectionRefusedError:
                with self._lock:
                    self.refused += 1
            except (OSError, HTTPException):
                continue  # it was connected to the process that died
            else:
                with self._lock:
                    self.answered += served


def test_a_killed_forwarding_actor_is_back_within_a_second_and_no_connection_is_refused(
    own_product: Product, origin: Origin
) -> None:
    proxy = own_product.proxy()
    with Load(proxy, origin) as load:
        wait_until(lambda: load.answered > 20, "there is load")
        psutil.Process(proxy["runtime"]["pid"]).kill()

        def back() -> bool:
            runtime = state(own_product, proxy)
            return runtime["state"] == "running" and runtime["pid"] != proxy["runtime"]["pid"]

        wait_until(back, "the actor is back", 1 * PATIENCE)
        before = load.answered
        wait_until(lambda: load.answered > before + 20, "clients are served again")
    assert load.refused == 0
    assert state(own_product, proxy)["restarts"] == 1


def test_forwarding_goes_on_while_the_api_is_dead_and_it_comes_back_with_all_its_data(
    own_product: Product, origin: Origin
) -> None:
    proxies = [own_product.proxy() for _ in range(3)]
    old = own_product.actor("api")
    old.kill()
    for proxy in proxies:
        assert fetched(proxy, origin)
    wait_until(lambda: not old.is_running(), "the old one is gone")
    own_product.wait_healthy(2 * PATIENCE)
    listed = own_product.data("GET", "/proxies")["proxies"]
    assert {each["id"] for each in listed} == {each["id"] for each in proxies}
    for proxy in proxies:
        assert state(own_product, proxy)["pid"] == proxy["runtime"]["pid"]


def test_twelve_deaths_of_any_kind_and_the_product_is_healthy_again(own_product: Product, origin: Origin) -> None:
    proxy = own_product.proxy()
    dice = random.Random(7)  # the same order in every run, so that a failure can be seen again
    kinds = ["api", "metrics", "logs", "webhooks", "resolver", "forwarding"] * 2
    dice.shuffle(kinds)
    for kind in kinds:
        if kind == "forwarding":
            victim = psutil.Process(wait_until(lambda: state(own_product, proxy)["pid"], "the proxy has a process"))
        else:
            victim = own_product.actor(kind)
        victim.kill()
        wait_until(lambda victim=victim: not victim.is_running(), f"{kind} is gone")
        own_product.wait_healthy(5 * PATIENCE)
        wait_until(lambda: state(own_product, proxy)["state"] == "running", "the proxy runs", 5 * PATIENCE)
        assert fetched(proxy, origin)
    for kind in ("api", "metrics", "logs", "webhooks", "resolver"):
        own_product.actor(kind)
    health = wait_until(lambda: healthy(own_product), "the health report is healthy", 5 * PATIENCE)
    assert health["checks"]["proxy_service"]["active_proxies"] == 1


def test_no_process_and_no_port_outlives_a_killed_supervisor_and_the_next_start_has_everything(
    own_product: Product, origin: Origin
) -> None:
    proxy = own_product.proxy()
    family = own_product.processes()
    own_product.kill()
    wait_until(lambda: not any(alive(process) for process in family), "all processes are gone", 2 * PATIENCE)
    for port in (proxy["port"], own_product.port):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    own_product.start()
    wait_until(lambda: state(own_product, proxy)["state"] == "running", "the proxy runs again")
    assert fetched(proxy, origin)


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_sigterm_ends_everything_with_status_0(own_product: Product) -> None:
    own_product.proxy()
    family = own_product.processes()
    assert own_product.stop() == 0
    wait_until(lambda: not any(alive(process) for process in family), "all processes are gone")


def test_a_second_start_on_the_same_data_says_who_holds_it_and_ends_with_1(product: Product) -> None:
    first, before = product.process, len(product.log)
    assert first is not None
    product.start(wait=False)
    second = product.process
    assert second is not None
    try:
        assert second.wait(60) == 1
    finally:
        product.process = first
    assert str(first.pid) in product.log[before:]
    product.wait_healthy()
