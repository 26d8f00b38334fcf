"""Who may use a proxy and where to: `Proxy-Authorization` and the egress guard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.kit.wire import Client, basic

pytestmark = pytest.mark.product


@pytest.fixture(scope="module")
def closed_proxy(product: Product) -> Iterator[dict[str, Any]]:
    made = product.proxy(auth={"enabled": True, "username": "ada", "password": "enchantress"})
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


@table(
    "credentials",
    [(), (basic("ada", "wrong"),), (basic("eve", "enchantress"),), ("Proxy-Authorization: Basic !",), (basic("", ""),)],
    ids=["none", "wrong password", "unknown user", "not base64", "empty"],
)
def test_without_the_right_credentials_the_answer_is_407(
    closed_proxy: dict[str, Any], origin: Origin, credentials: tuple[str, ...]
) -> None:
    before = len(origin.seen)
    with Client(closed_proxy["port"]) as client:
        response = client.get(origin.url("/hello"), *credentials)
    assert response.status == 407
    assert response.fields["proxy-authenticate"].startswith("Basic ")
    assert len(origin.seen) == before


def test_with_the_right_credentials_requests_pass_and_the_origin_never_sees_them(
    closed_proxy: dict[str, Any], origin: Origin
) -> None:
    with Client(closed_proxy["port"]) as client:
        response = client.get(origin.url("/headers"), basic("ada", "enchantress"))
    assert response.status == 200
    assert b"uthorization" not in response.body


def test_a_client_may_try_again_with_credentials_on_the_same_connection(
    closed_proxy: dict[str, Any], origin: Origin
) -> None:
    with Client(closed_proxy["port"]) as client:
        assert client.get(origin.url("/hello")).status == 407
        assert client.get(origin.url("/hello"), basic("ada", "enchantress")).status == 200


def test_connect_needs_credentials_too(closed_proxy: dict[str, Any], origin: Origin) -> None:
    target = f"127.0.0.1:{origin.port}"
    with Client(closed_proxy["port"]) as client:
        assert b" 407 " in client.connect(target)
    with Client(closed_proxy["port"]) as client:
        assert b" 200 " in client.connect(target, basic("ada", "enchantress"))


def test_the_password_is_in_no_answer_of_the_api(product: Product, closed_proxy: dict[str, Any]) -> None:
    response = product.api("GET", f"/proxies/{closed_proxy['id']}")
    assert response.json()["data"]["proxy"]["auth"] == {"enabled": True, "username": "ada"}
    assert "enchantress" not in response.text


def test_the_api_is_refused_as_a_target_even_inside_egress_allow(product: Product, proxy: dict[str, Any]) -> None:
    with Client(proxy["port"]) as client:
        response = client.get(f"{product.base_url}/health")
    assert response.status == 403
    assert "proxy-status" in response.fields
    with Client(proxy["port"]) as client:
        assert b" 403 " in client.connect(f"127.0.0.1:{product.port}")


def test_a_proxy_refuses_itself_and_its_neighbour_as_a_target(product: Product, proxy: dict[str, Any]) -> None:
    neighbour = product.proxy()

    def refused(port: int) -> bool:
        with Client(proxy["port"]) as client:
            return client.get(f"http://127.0.0.1:{port}/").status == 403

    for port in (proxy["port"], neighbour["port"]):
        # the news of a listener reaches the actors in batches
        wait_until(lambda port=port: refused(port), f"port {port} is refused")
    product.data("DELETE", f"/proxies/{neighbour['id']}")


@table("target", ["10.0.0.1", "169.254.169.254", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "0.0.0.0"])
def test_private_and_link_local_targets_are_refused_in_any_spelling(proxy: dict[str, Any], target: str) -> None:
    with Client(proxy["port"]) as client:
        response = client.get(f"http://{target}:9/")
    assert response.status == 403
    assert "proxy-status" in response.fields


def test_without_exceptions_loopback_is_refused(strict_product: Product, origin: Origin) -> None:
    made = strict_product.proxy()
    with Client(made["port"]) as client:
        assert client.get(origin.url("/hello")).status == 403
    for target in ("127.1", "2130706433", "0x7f.1", "localhost"):
        with Client(made["port"]) as client:
            assert client.get(f"http://{target}:{origin.port}/hello").status in (400, 403)
