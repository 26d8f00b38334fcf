"""Accounts of the fleet on the whole product: known to every proxy that matches when the API responds."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import requests

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = pytest.mark.product


def closed(product: Product, *tags: str) -> dict[str, Any]:
    """A proxy that wants credentials and has none of its own."""
    return product.proxy(tags=list(tags), auth={"enabled": True})


def status(proxy: dict[str, Any], origin: Origin, username: str, password: str) -> int:
    word = base64.b64encode(f"{username}:{password}".encode()).decode()
    session = requests.Session()
    session.trust_env = False
    url, headers = origin.url("/hello"), {"Proxy-Authorization": f"Basic {word}"}
    target = f"http://127.0.0.1:{proxy['port']}"
    return session.get(url, headers=headers, proxies={"http": target}, timeout=30).status_code


def test_an_account_works_everywhere_when_the_response_is_there(product: Product, origin: Origin) -> None:
    east, west = closed(product, "eu"), closed(product, "us")
    body = {"username": "ada", "password": "ada's word", "proxies": {"tags": ["eu"]}}
    account = product.data("POST", "/accounts", body)["account"]
    assert (status(east, origin, "ada", "ada's word"), status(west, origin, "ada", "ada's word")) == (200, 407)
    product.data("PATCH", f"/accounts/{account['id']}", {"proxies": {"all": True}})
    later = closed(product)
    for each in (east, west, later):
        assert status(each, origin, "ada", "ada's word") == 200
    wait_until(
        lambda: (product.data("GET", f"/accounts/{account['id']}")["account"]["usage"] or {}).get("bytes"), "its usage"
    )
    product.data("DELETE", f"/accounts/{account['id']}")
    assert [status(each, origin, "ada", "ada's word") for each in (east, west, later)] == [407] * 3
