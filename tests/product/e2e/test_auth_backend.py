"""A proxy of the whole product with an authentication back end on loopback."""

from __future__ import annotations

import base64
import socket
from typing import Any

import pytest

from tests.kit.auth_backends import AuthBackend
from tests.kit.product import Product
from tests.kit.scripted_origins import Origin, echoes
from tests.kit.wait import wait_until

pytestmark = pytest.mark.product

WORD = "a word of the back end"


def decide(content: dict[str, Any]) -> dict[str, Any]:
    """Carol is the account ada, and dave is no account."""
    found: dict[str, dict[str, Any]] = {"carol": {"account": "ada"}, "dave": {"ttl": 0}}
    return {"allow": content["username"] in found and content["password"] == WORD, **found.get(content["username"], {})}


def status(proxy: dict[str, Any], origin: Origin, user: str, word: str = WORD) -> int:
    credentials = base64.b64encode(f"{user}:{word}".encode()).decode()
    head = f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {credentials}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", proxy["port"]), 30) as sock:
        sock.sendall(head.encode())
        return int(sock.recv(4096).split()[1])


def test_a_back_end_decides_about_users_who_are_no_accounts_and_its_death_is_no_wrong_password(
    own_product: Product,
) -> None:
    product = own_product
    with AuthBackend(decide) as backend, Origin(echoes) as origin:
        settings = {"url": backend.url, "secret": backend.secret, "on_error": "allow_cached", "cache_seconds": 0}
        proxy = product.proxy(auth={"backend": settings})
        account = product.data("POST", "/accounts", {"username": "ada", "password": "ada's long word"})["account"]
        assert [status(proxy, origin, user) for user in ("carol", "dave", "eve")] == [200, 200, 407]
        assert status(proxy, origin, "carol", "wrong") == 407
        assert status(proxy, origin, "ada", "ada's long word") == 200
        assert status(proxy, origin, "ada") == 407
        assert "ada" not in backend.asked
        asked = backend.received[0].verified(backend.secret)
        assert (asked["username"], asked["proxy_id"], asked["target"]) == ("carol", proxy["id"], origin.authority)
        product.data("PATCH", f"/accounts/{account['id']}", {"enabled": False})
        assert [status(proxy, origin, user) for user in ("carol", "dave")] == [403, 200]
        backend.die()
        assert [status(proxy, origin, user) for user in ("carol", "dave", "frank")] == [403, 200, 503]
        found = wait_until(lambda: _failures(product), "the refusal has a record")
        assert {each["user"] for each in found} == {"frank"}
        assert WORD not in product.log
        assert backend.secret not in product.log


def _failures(product: Product) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = product.data("GET", "/logs?reason=auth_backend_failed")["logs"]
    return found
