"""Bad input to the API: the errors of the contract, and nothing stored."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest

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


def test_a_low_port_without_permission_is_refused_and_nothing_is_stored(strict_product: Product) -> None:
    error = refused(strict_product, valid(strict_product, port=1))
    assert error["details"]["field"] == "port"
    assert "permission" in error["details"]["error"].lower()
