"""Bad input to the API: the errors of the contract, and nothing stored."""

from __future__ import annotations

import os
import shutil
import socket
from typing import Any

import pytest
import requests

from tests.kit.product import Product

pytestmark = pytest.mark.product


def refused(product: Product, body: Any) -> dict[str, Any]:
    """The error of a create that must be refused with 400 and must store nothing."""
    before = product.data("GET", "/proxies")["pagination"]["total"]
    response = product.api("POST", "/proxies", body)
    assert response.status_code == 400, response.text
    envelope = response.json()
    assert (envelope["success"], envelope["error"]["code"]) == (False, "INVALID_REQUEST")
    assert product.data("GET", "/proxies")["pagination"]["total"] == before
    error: dict[str, Any] = envelope["error"]
    return error


def valid(product: Product, **changes: Any) -> dict[str, Any]:
    return {"name": f"n-{os.urandom(4).hex()}", "port": product.free_port(), "protocol": "http", **changes}


def test_a_port_in_use_is_refused(product: Product) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        error = refused(product, valid(product, port=holder.getsockname()[1]))
    assert error["details"]["field"] == "port"
    assert error["details"]["error"]


def test_an_address_that_is_not_local_is_refused(product: Product) -> None:
    assert refused(product, valid(product, host="192.0.2.1"))["details"]["field"] == "host"


WITHOUT_LOW_PORTS = ("setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service")
"""Root without the capability is refused low ports like anybody else; others don't have it anyway."""


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_a_low_port_without_permission_is_refused_and_nothing_is_stored() -> None:
    with Product(wrapper=WITHOUT_LOW_PORTS if os.geteuid() == 0 else ()) as product:
        error = refused(product, valid(product, port=1))
        assert error["details"]["field"] == "port"
        assert "permission" in error["details"]["error"].lower()
        assert product.data("GET", "/proxies")["pagination"]["total"] == 0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"port": 0}, "port"),
        ({"port": 65536}, "port"),
        ({"port": "3128"}, "port"),
        ({"port": True}, "port"),
        ({"protocol": "ftp"}, "protocol"),
        ({"name": ""}, "name"),
        ({"name": 5}, "name"),
        ({"colour": "red"}, "colour"),
        ({"id": "mine"}, "id"),
        ({"settings": {"timeout": 0}}, "settings.timeout"),
        ({"settings": {"timeout": 3601}}, "settings.timeout"),
        ({"settings": {"speed": 1}}, "settings.speed"),
        ({"tags": "blue"}, "tags"),
        ({"auth": {"enabled": "yes"}}, "auth"),
    ],
    ids=str,
)
def test_a_bad_field_is_named(product: Product, changes: dict[str, Any], field: str) -> None:
    assert refused(product, valid(product, **changes))["details"]["field"].startswith(field)


@pytest.mark.parametrize("missing", ["name", "port", "protocol"])
def test_a_missing_field_is_named(product: Product, missing: str) -> None:
    body = valid(product)
    del body[missing]
    assert refused(product, body)["details"]["field"] == missing


def test_a_name_may_be_used_once(product: Product, proxy: dict[str, Any]) -> None:
    assert refused(product, valid(product, name=proxy["name"]))["details"]["field"] == "name"


@pytest.mark.parametrize("body", [[], "text", 5, None], ids=repr)
def test_a_body_that_is_no_object_is_refused(product: Product, body: Any) -> None:
    response = raw(product, repr(body).replace("'", '"').replace("None", "null").encode())
    assert (response.status_code, response.json()["error"]["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "body",
    [b"{", b"{'name': 1}", b"\xff\xfe", b"[" * 100_000, b""],
    ids=["cut", "quotes", "not utf-8", "deep", "empty"],
)
def test_malformed_json_is_refused(product: Product, body: bytes) -> None:
    response = raw(product, body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "INVALID_REQUEST")


def test_a_body_over_one_megabyte_is_refused_with_413(product: Product) -> None:
    response = raw(product, b'{"name": "' + b"x" * (2**20) + b'"}')
    assert (response.status_code, response.json()["error"]["code"]) == (413, "INVALID_REQUEST")


def raw(product: Product, body: bytes) -> requests.Response:
    headers = {"Authorization": f"Bearer {product.token}", "Content-Type": "application/json"}
    return product.session.post(f"{product.base_url}/api/v1/proxies", data=body, headers=headers, timeout=15)
