"""Bad input to the API: the errors of the contract, and nothing stored."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
import requests

from tests.kit.product import Product
from tests.kit.tables import table

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


def test_a_low_port_without_permission_is_refused_and_nothing_is_stored(strict_product: Product) -> None:
    error = refused(strict_product, valid(strict_product, port=1))
    assert error["details"]["field"] == "port"
    assert "permission" in error["details"]["error"].lower()


@table(
    ("changes", "field"),
    [({"port": 0}, "port"), ({"colour": "red"}, "colour"), ({"settings": {"timeout": 3601}}, "settings.timeout")],
)
def test_a_bad_field_is_named(product: Product, changes: dict[str, Any], field: str) -> None:
    assert refused(product, valid(product, **changes))["details"]["field"] == field


def test_a_missing_field_is_named(product: Product) -> None:
    body = valid(product)
    del body["protocol"]
    assert refused(product, body)["details"]["field"] == "protocol"


def test_a_name_may_be_used_once(product: Product, proxy: dict[str, Any]) -> None:
    assert refused(product, valid(product, name=proxy["name"]))["details"]["field"] == "name"


@table(
    "body",
    [b"{", b"{'name': 1}", b"\xff\xfe", b"[" * 100_000, b"", b"[]", b'"text"', b"null"],
    ids=["cut", "quotes", "not utf-8", "deep", "empty", "a list", "a text", "null"],
)
def test_a_body_that_is_no_object_of_json_is_refused(product: Product, body: bytes) -> None:
    response = raw(product, body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "INVALID_REQUEST")


def test_a_body_over_one_megabyte_is_refused_with_413(product: Product) -> None:
    response = raw(product, b'{"name": "' + b"x" * (2**20) + b'"}')
    assert (response.status_code, response.json()["error"]["code"]) == (413, "INVALID_REQUEST")


def raw(product: Product, body: bytes) -> requests.Response:
    headers = {"Authorization": f"Bearer {product.token}", "Content-Type": "application/json"}
    return product.session.post(f"{product.base_url}/api/v1/proxies", data=body, headers=headers, timeout=15)
