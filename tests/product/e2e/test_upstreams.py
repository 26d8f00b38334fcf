"""Chains of our own proxies through the whole product, by the API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

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


def _users(product: Product, proxy: dict[str, Any]) -> set[str]:
    return {each["user"] for each in product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"]}
