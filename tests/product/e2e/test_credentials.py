"""Credentials on the whole product: dead with the response that revokes them, and gone an hour after their time."""

from __future__ import annotations

import base64
import socket
import time
from typing import Any

import pytest

from api.objects.accounts.credential_service import KEPT_AFTER_END
from api.store.accounts import CREDENTIALS
from config.files.paths import DataDir
from tests.kit.own_accounts import OwnAccounts
from tests.kit.product import Product
from tests.kit.scripted_origins import Origin, echoes
from tests.kit.wait import wait_until

pytestmark = pytest.mark.product


def mint(product: Product, account: dict[str, Any], **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = product.data("POST", f"/accounts/{account['id']}/credentials", {"ttl": 900, **fields})
    return made


def tunnel(proxy: dict[str, Any], origin: Origin, authorization: str) -> tuple[socket.socket, int]:
    """A connection, and the status of the response to CONNECT."""
    head = f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: {authorization}\r\n\r\n"
    sock = socket.create_connection(("127.0.0.1", proxy["port"]), 20)
    sock.sendall(head.encode())
    return sock, int(sock.recv(4096).split()[1])


def basic(secret: str) -> str:
    return "Basic " + base64.b64encode(f"ci:{secret}".encode()).decode()


def ended(sock: socket.socket) -> bool:
    sock.settimeout(60)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_revocation_ends_its_tunnels_alone_and_holds_when_the_api_is_killed_right_after(own_product: Product) -> None:
    product = own_product
    with Origin(echoes) as origin:
        proxies = [product.proxy(auth={"enabled": True}) for _ in range(2)]
        account = product.data("POST", "/accounts", {"username": "ci"})["account"]
        gone, kept = mint(product, account), mint(product, account)
        tunnels = [tunnel(each, origin, basic(gone["secret"])) for each in proxies]
        other = tunnel(proxies[0], origin, f"Bearer {kept['secret']}")
        assert [status for _, status in (*tunnels, other)] == [200, 200, 200]
        path = f"/accounts/{account['id']}/credentials/{gone['credential']['id']}"
        assert product.api("DELETE", path).status_code == 200
        product.actor("api").kill()
        assert all(ended(sock) for sock, _ in tunnels)
        for each in proxies:
            sock, status = tunnel(each, origin, basic(gone["secret"]))
            sock.close()
            assert status == 407
        other[0].sendall(b"still")
        assert other[0].recv(5) == b"still"
        for sock, _ in (*tunnels, other):
            sock.close()


def test_what_lapsed_while_the_product_was_down_is_removed_at_its_start(own_product: Product) -> None:
    product = own_product
    before = len(audited(product))
    account = product.data("POST", "/accounts", {"username": "ci"})["account"]
    lapsed, living = mint(product, account, name="lapsed"), mint(product, account, name="living")
    assert product.stop() == 0
    store = OwnAccounts(DataDir(product.data_dir))
    document = store.get(CREDENTIALS, lapsed["credential"]["id"])
    assert document is not None
    store.put(CREDENTIALS, {**document.body, "expires_at": time.time() - KEPT_AFTER_END - 1})
    store.close()
    product.start()
    path = f"/accounts/{account['id']}/credentials"
    wait_until(lambda: len(product.data("GET", path)["credentials"]) == 1, "the lapsed one is removed")
    assert product.data("GET", path)["credentials"] == [living["credential"]]
    assert audited(product)[before:] == ["credential.created", "credential.created"]


def audited(product: Product) -> list[str]:
    """What was done to credentials, the oldest first."""
    rows = product.data("GET", "/audit?action=credential.*&limit=1000")["audit"]
    return [each["action"] for each in reversed(rows)]
