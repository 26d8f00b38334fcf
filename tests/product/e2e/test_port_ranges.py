"""One proxy at a range of ports: curl at each of them, moves, restarts, kills, and a port that is taken."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from config.net.names import Ports
from tests.kit.curl import curl, needs_curl
from tests.kit.http_origins import Origin
from tests.kit.ports import free_ports
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = [pytest.mark.product, needs_curl]

Made = Callable[..., dict[str, Any]]


@pytest.fixture
def made(product: Product, request: pytest.FixtureRequest) -> Made:
    """Makes a proxy, which is deleted at the end."""

    def make(ports: Ports, **fields: Any) -> dict[str, Any]:
        proxy = product.proxy(port=ports.written, **fields)
        request.addfinalizer(lambda: product.api("DELETE", f"/proxies/{proxy['id']}"))
        return proxy

    return make


def fetch(port: int, url: str, scheme: str = "http") -> tuple[int, str]:
    return curl("-x", f"{scheme}://127.0.0.1:{port}", url)


def records(product: Product, proxy: dict[str, Any], **query: Any) -> list[dict[str, Any]]:
    filters = "&".join(f"{name}={value}" for name, value in query.items())
    found: list[dict[str, Any]] = product.data("GET", f"/logs?proxy_id={proxy['id']}&{filters}")["logs"]
    return found


def test_curl_is_served_at_each_port_and_recorded_with_it(product: Product, origin: Origin, made: Made) -> None:
    ports = free_ports(300)
    proxy = made(ports, protocol="mixed")
    assert proxy["port"] == str(ports)
    for port in (ports.first, ports.first + 150, ports.last):
        for scheme in ("http", "socks5h"):
            assert fetch(port, origin.url("/hello"), scheme)[0] == 200
        wait_until(lambda port=port: len(records(product, proxy, listen_port=port)) == 2, f"records of {port}")
    recorded = {each["listen_port"] for each in records(product, proxy)}
    assert recorded == {ports.first, ports.first + 150, ports.last}


def test_all_ports_survive_the_death_and_the_restart_of_their_process(
    product: Product, origin: Origin, made: Made
) -> None:
    ports = free_ports(20)
    proxy = made(ports)
    os.kill(proxy["runtime"]["pid"], signal.SIGKILL)
    assert all(fetch(port, origin.url("/hello"))[0] == 200 for port in ports)
    product.data("POST", f"/proxies/{proxy['id']}/restart")
    assert all(fetch(port, origin.url("/hello"))[0] == 200 for port in ports)


def test_a_stopped_range_is_closed_and_moves(product: Product, origin: Origin, made: Made) -> None:
    ports = free_ports(6)
    proxy = made(Ports(ports.first, ports.first + 3))
    path = f"/proxies/{proxy['id']}"
    product.data("POST", f"{path}/stop")
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
    product.data("PATCH", path, {"port": f"{ports.first + 2}-{ports.last}"})
    product.data("POST", f"{path}/start")
    assert fetch(ports.last, origin.url("/hello"))[0] == 200


def test_no_port_of_a_range_is_a_target_of_a_proxy(product: Product, made: Made) -> None:
    ports = free_ports(8)
    made(ports)
    other = made(Ports.of(product.free_port()))
    refused = [fetch(other["port"], f"http://127.0.0.1:{port}/") for port in (ports.first, ports.first + 4, ports.last)]
    assert {status for status, _text in refused} == {403}
    assert all("service itself" in text for _status, text in refused), refused


def test_a_range_that_sleeps_wakes_at_each_of_its_ports_and_is_closed_asleep(
    product: Product, origin: Origin, made: Made
) -> None:
    ports = free_ports(30)
    proxy = made(ports, sleep_after=1)
    path = f"/proxies/{proxy['id']}"

    def asleep() -> bool:
        return bool(product.data("GET", path)["proxy"]["runtime"]["state"] == "sleeping")

    for port in (ports.first, ports.first + 17, ports.last):
        wait_until(asleep, "it sleeps")
        assert fetch(port, origin.url("/hello"))[0] == 200
        wait_until(lambda port=port: records(product, proxy, listen_port=port), f"a record of {port}")
    wait_until(asleep, "it sleeps")
    product.data("POST", f"{path}/stop")
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
