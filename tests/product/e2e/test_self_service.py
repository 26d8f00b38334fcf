"""A holder of an account signs in, looks at what goes through, and changes the password, on a running product."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import requests

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product

FIRST, SECOND = "correct horse", "battery staple"


def authorization(password: str) -> str:
    return "Proxy-Authorization: Basic " + base64.b64encode(f"alice:{password}".encode()).decode()


def test_a_holder_sees_the_tunnel_and_a_new_password_ends_it_and_the_token(
    own_product: Product, origin: Origin
) -> None:
    product = own_product
    proxy = product.proxy(protocol="http", auth={"enabled": True})
    product.data("POST", "/plans", {"name": "basic", "self_service": {"password": True}})
    product.data("POST", "/accounts", {"username": "alice", "password": FIRST, "plan": "basic"})

    def me(method: str, path: str = "", body: Any = None, token: str | None = None) -> requests.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return requests.request(method, f"{product.base_url}/api/v1/me{path}", json=body, headers=headers, timeout=30)

    def sign_in(password: str) -> requests.Response:
        return me("POST", "/login", {"username": "alice", "password": password})

    token = sign_in(FIRST).json()["data"]["access_token"]
    with Client(proxy["port"]) as tunnel:
        target = f"127.0.0.1:{origin.port}"
        assert b" 200 " in tunnel.connect(target, authorization(FIRST))
        (live,) = me("GET", "/connections", token=token).json()["data"]["connections"]
        assert (live["proxy"], live["target"], live["state"]) == (proxy["name"], target, "tunnel")

        def used() -> bool:
            data = me("GET", "/usage", token=token).json()["data"]
            return data["usage"]["active_connections"] == 1 and sum(each["bytes_in"] for each in data["days"]) > 0

        wait_until(used, "it is counted")
        assert product.api("GET", "/proxies", headers={"Authorization": f"Bearer {token}"}).status_code == 403

        body = {"password": SECOND, "current_password": FIRST}
        assert me("PATCH", body=body, token=token).status_code == 200
        assert tunnel.rest() == b"", "a tunnel of the old password ends"
    assert me("GET", token=token).status_code == 401
    assert sign_in(FIRST).status_code == 401
    token = sign_in(SECOND).json()["data"]["access_token"]
    assert me("GET", token=token).json()["data"]["account"]["proxies"][0]["name"] == proxy["name"]
    with Client(proxy["port"]) as tunnel:
        assert b" 200 " in tunnel.connect(target, authorization(SECOND))
