"""Chains of our own proxies through the whole product, by the API."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from actors.bus.codec import decode
from actors.bus.messages.events import Event
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product

SECRET = "pass-phrase-of-an-upstream"
AUTH = {"enabled": True, "username": "up", "password": SECRET}


@pytest.fixture
def above(product: Product) -> Iterator[dict[str, Any]]:
    """An upstream: another of the product's own listeners, with credentials."""
    made = product.proxy(auth=AUTH)
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


def entry(above: dict[str, Any], **changes: Any) -> dict[str, Any]:
    auth = {"username": "up", "password": SECRET}
    return {"protocol": above["protocol"], "host": "127.0.0.1", "port": above["port"], "auth": auth, **changes}


def test_a_chain_over_the_api_passes_requests_and_tunnels_and_is_seen_from_outside(
    product: Product, above: dict[str, Any], origin: Origin
) -> None:
    dead = {"protocol": "socks5", "host": "127.0.0.1", "port": product.free_port(), "name": "dead"}
    proxy = product.proxy(upstreams=[dead, entry(above, name="living")])
    path = f"/proxies/{proxy['id']}"
    with Client(proxy["port"]) as plain, Client(proxy["port"]) as tunnel:
        assert plain.get(origin.url("/hello")).status == 200
        assert b" 200 " in tunnel.connect(f"127.0.0.1:{origin.port}")
        listed = product.data("GET", f"{path}/connections")["connections"]
        assert {each["parent"] for each in listed} == {"living"}
        detail = product.data("GET", path)["proxy"]
        assert [(each["name"], each["state"]) for each in detail["runtime"]["upstreams"]] == [
            ("dead", "down"),
            ("living", "up"),
        ]
    result = product.data("POST", f"{path}/test", {"url": origin.url("/hello")})["test_result"]
    assert (result["status"], result["parent"]) == ("success", "living")
    wait_until(lambda: _users(product, above) == {"up"}, "the upstream has records of its user")
    product.api("DELETE", path)


def test_a_changed_list_of_upstreams_holds_at_once_and_an_empty_one_ends_the_chain(
    product: Product, above: dict[str, Any], proxy: dict[str, Any], origin: Origin
) -> None:
    path = f"/proxies/{proxy['id']}"
    with Client(proxy["port"]) as client:
        assert client.get(origin.url("/hello")).status == 200
        product.data("PATCH", path, {"upstreams": [entry(above, auth={"username": "up", "password": "wrong"})]})
        wait_until(lambda: client.get(origin.url("/hello")).status == 502, "the upstream refuses us")
        product.data("PATCH", path, {"upstreams": [entry(above)]})
        wait_until(lambda: client.get(origin.url("/hello")).status == 200, "the upstream takes us")
        product.data("PATCH", path, {"upstreams": []})
        wait_until(lambda: _direct(product, path, client, origin), "the chain is gone")


def test_the_password_is_nowhere_in_the_data_directory_nor_in_the_log_and_survives_a_restart_with_the_key_file(
    own_product: Product, origin: Origin
) -> None:
    above = own_product.proxy(auth=AUTH)
    proxy = own_product.proxy(upstreams=[entry(above)])
    own_product.stop()
    files = [file for file in own_product.data_dir.rglob("*") if file.is_file()]
    assert all(SECRET.encode() not in file.read_bytes() for file in files)
    key = own_product.data_dir / "keys" / "secrets.key"
    key.rename(own_product.directory / "away")
    own_product.start(wait=False)
    assert own_product.process is not None
    assert own_product.process.wait(60) == 1
    assert "secrets.key: missing" in own_product.log
    (own_product.directory / "away").rename(key)
    own_product.start()
    with Client(proxy["port"]) as client:
        wait_until(lambda: client.get(origin.url("/hello")).status == 200, "the chain works again")
    assert all(SECRET not in " ".join(process.cmdline()) for process in own_product.lasting())
    assert SECRET not in own_product.log


def test_an_upstream_that_goes_down_and_comes_back_is_reported_as_events(product: Product) -> None:
    port = product.free_port()
    with zmq.Context() as context, context.socket(zmq.SUB) as events:
        events.linger = 0
        events.connect(f"ipc://{product.run_dir}/events.out")
        for kind in ("proxy.error", "proxy.recovered"):
            events.subscribe(f"events.{kind}")
        proxy = product.proxy(upstreams=[{"protocol": "http", "host": "127.0.0.1", "port": port, "name": "above"}])
        wait_until(lambda: _state(product, proxy) == "down", "the check has failed")
        with socket.create_server(("127.0.0.1", port)):
            wait_until(lambda: _state(product, proxy) == "up", "the check has succeeded")
        reported = [_event(events, proxy) for _ in range(4)]
    assert reported == [
        ("proxy.error", "upstream_down"),
        ("proxy.error", "upstreams_unreachable"),
        ("proxy.recovered", "upstreams_unreachable"),
        ("proxy.recovered", "upstream_down"),
    ]
    product.api("DELETE", f"/proxies/{proxy['id']}")


def _state(product: Product, proxy: dict[str, Any]) -> str:
    runtime = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]
    return str(runtime["upstreams"][0]["state"]) if runtime["upstreams"] else ""


def _event(events: zmq.Socket[bytes], proxy: dict[str, Any]) -> tuple[str, str]:
    """Type and error of the next event about this proxy."""
    while True:
        assert events.poll(10_000), "an event"
        message = decode(events.recv_multipart()[1]).message
        assert isinstance(message, Event)
        if message.data["proxy_id"] == proxy["id"]:
            return message.type, message.data["error"]


def _users(product: Product, proxy: dict[str, Any]) -> set[str]:
    return {each["user"] for each in product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"]}


def _direct(product: Product, path: str, client: Client, origin: Origin) -> bool:
    assert client.get(origin.url("/hello")).status == 200
    listed = product.data("GET", f"{path}/connections")["connections"]
    return [each["parent"] for each in listed] == [None]
