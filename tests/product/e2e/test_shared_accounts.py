"""Accounts of the API on the proxies that they may use: there at once, and gone with the response that says so."""

from __future__ import annotations

import base64
import socket
from typing import Any

import pytest

from tests.kit.product import Product
from tests.kit.scripted_origins import Origin, echoes
from tests.kit.wait import wait_until

pytestmark = pytest.mark.product

WORD = "ada's long word"


def make_account(product: Product, **fields: Any) -> dict[str, Any]:
    account: dict[str, Any] = product.data("POST", "/accounts", {"username": "ada", "password": WORD, **fields})[
        "account"
    ]
    return account


def tunnel(proxy: dict[str, Any], origin: Origin) -> tuple[socket.socket, int]:
    """A connection of ada, and the status of the response to CONNECT."""
    word = base64.b64encode(f"ada:{WORD}".encode()).decode()
    head = f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {word}\r\n\r\n"
    sock = socket.create_connection(("127.0.0.1", proxy["port"]), 20)
    sock.sendall(head.encode())
    return sock, int(sock.recv(4096).split()[1])


def status(proxy: dict[str, Any], origin: Origin) -> int:
    sock, found = tunnel(proxy, origin)
    sock.close()
    return found


def test_an_account_is_good_at_once_on_the_proxies_that_it_names_now_and_later(own_product: Product) -> None:
    product = own_product
    with Origin(echoes) as origin:
        tagged, other = (product.proxy(auth={"enabled": True}, tags=tags) for tags in (["eu"], []))
        assert [status(each, origin) for each in (tagged, other)] == [407, 407]
        account = make_account(product, proxies={"tags": ["eu"]})
        assert [status(each, origin) for each in (tagged, other)] == [200, 407]
        later = product.proxy(auth={"enabled": True}, tags=["eu"])
        assert status(later, origin) == 200
        product.data("PATCH", f"/proxies/{other['id']}", {"tags": ["eu"]})
        wait_until(lambda: status(other, origin) == 200, "the proxy has its new tag", 10)
        product.data("PATCH", f"/accounts/{account['id']}", {"proxies": {"ids": [other["id"]]}})
        assert [status(each, origin) for each in (tagged, later, other)] == [407, 407, 200]


@pytest.mark.parametrize("how", ["disabled", "deleted"])
def test_what_the_api_has_acknowledged_holds_when_it_is_killed_right_after(own_product: Product, how: str) -> None:
    product = own_product
    with Origin(echoes) as origin:
        proxies = [product.proxy(auth={"enabled": True}) for _ in range(2)]
        account = make_account(product)
        tunnels = [tunnel(each, origin) for each in proxies]
        assert [found for _sock, found in tunnels] == [200, 200]
        path = f"/accounts/{account['id']}"
        if how == "disabled":
            product.data("PATCH", path, {"enabled": False})
        else:
            product.api("DELETE", path)
        product.actor("api").kill()
        assert [status(each, origin) for each in proxies] == ([403, 403] if how == "disabled" else [407, 407])
        for sock, _found in tunnels:
            with sock:
                assert _ended(sock)
        product.wait_healthy()


def _ended(sock: socket.socket) -> bool:
    sock.settimeout(10)  # a second, and room for a busy machine
    try:
        return not sock.recv(100)
    except ConnectionResetError:
        return True
