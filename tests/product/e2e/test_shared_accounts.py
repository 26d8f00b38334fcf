"""Accounts of the API on the proxies that they may use: there at once, and gone with the response that says so."""

from __future__ import annotations

import base64
import socket
from typing import Any

import bcrypt
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


def tunnel(proxy: dict[str, Any], origin: Origin, user: str = "ada") -> tuple[socket.socket, int]:
    """A connection of an account, and the status of the response to CONNECT."""
    word = base64.b64encode(f"{user}:{WORD}".encode()).decode()
    head = f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {word}\r\n\r\n"
    sock = socket.create_connection(("127.0.0.1", proxy["port"]), 20)
    sock.sendall(head.encode())
    return sock, int(sock.recv(4096).split()[1])


def status(proxy: dict[str, Any], origin: Origin, user: str = "ada") -> int:
    sock, found = tunnel(proxy, origin, user)
    sock.close()
    return found


def test_what_the_api_has_acknowledged_holds_when_it_is_killed_right_after(own_product: Product) -> None:
    product = own_product
    with Origin(echoes) as origin:
        proxies = [product.proxy(auth={"enabled": True}) for _ in range(2)]
        ada, bob = make_account(product), make_account(product, username="bob")
        tunnels = [tunnel(each, origin, user) for each in proxies for user in ("ada", "bob")]
        assert [found for _sock, found in tunnels] == [200] * 4
        product.data("PATCH", f"/accounts/{ada['id']}", {"enabled": False})
        product.api("DELETE", f"/accounts/{bob['id']}")
        product.actor("api").kill()
        assert [status(each, origin) for each in proxies] == [403, 403]
        assert [status(each, origin, "bob") for each in proxies] == [407, 407]
        for sock, _found in tunnels:
            with sock:
                assert _ended(sock)
        product.wait_healthy()


def test_a_credential_is_good_on_every_protocol_until_it_is_revoked(own_product: Product) -> None:
    product = own_product
    with Origin(echoes) as origin:
        proxies = {each: product.proxy(auth={"enabled": True}, protocol=each) for each in ("http", "socks5", "socks4")}
        account = make_account(product)
        path = f"/accounts/{account['id']}/credentials"
        made = product.data("POST", path, {"name": "job", "ttl": 600})
        secret = made["secret"]
        opened = [through(proxies[each]["port"], each, origin, secret) for each in proxies]
        assert all(sock is not None for sock in opened)
        product.api("DELETE", f"{path}/{made['credential']['id']}")
        product.actor("api").kill()
        assert [through(proxies[each]["port"], each, origin, secret) for each in proxies] == [None] * 3
        for sock in opened:
            assert sock is not None
            with sock:
                assert _ended(sock)
        product.wait_healthy()


def test_an_imported_hash_is_replaced_at_the_first_right_password(own_product: Product) -> None:
    product = own_product
    hashed = bcrypt.hashpw(WORD.encode(), bcrypt.gensalt(5)).decode()
    with Origin(echoes) as origin:
        proxies = [product.proxy(auth={"enabled": True}) for _ in range(2)]
        account = product.data("POST", "/accounts", {"username": "ada", "password_hash": hashed})["account"]
        path = f"/accounts/{account['id']}"
        opened = [tunnel(each, origin) for each in proxies]
        assert [found for _sock, found in opened] == [200, 200]
        query = f"/audit?action=account.updated&resource_id={account['id']}"
        (entry,) = wait_until(lambda: product.data("GET", query)["audit"], "the new hash is stored")
        assert (entry["actor"]["type"], entry["operation"]) == ("system", "renew-password")
        for sock, _found in opened:
            with sock:
                sock.sendall(b"goes on")
                assert sock.recv(100) == b"goes on"
        assert [status(each, origin) for each in proxies] == [200, 200]
        assert "$2b$" not in product.log
        assert WORD not in product.log
        product.data("PATCH", path, {"password": "another long word"})
        assert [status(each, origin) for each in proxies] == [407, 407]


def through(port: int, protocol: str, origin: Origin, secret: str) -> socket.socket | None:
    """A tunnel by a credential of ada; None when it is refused."""
    sock = socket.create_connection(("127.0.0.1", port), 20)
    number = origin.port.to_bytes(2, "big")
    if protocol == "http":
        sock.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n".encode())
        sock.sendall(f"Proxy-Authorization: Bearer {secret}\r\n\r\n".encode())
        granted = sock.recv(4096).startswith(b"HTTP/1.1 200 ")
    elif protocol == "socks4":
        sock.sendall(b"\x04\x01" + number + b"\x7f\0\0\x01" + secret.encode() + b"\0")
        granted = sock.recv(8)[1:2] == b"\x5a"
    else:
        sock.sendall(b"\x05\x01\x02\x01\x03ada" + bytes((len(secret),)) + secret.encode())
        granted = _exactly(sock, 4) == b"\x05\x02\x01\x00"
        if granted:
            sock.sendall(b"\x05\x01\0\x01\x7f\0\0\x01" + number)
            granted = _exactly(sock, 10)[1] == 0
    if granted:
        return sock
    sock.close()
    return None


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece, f"closed after {data!r}"
        data += piece
    return data


def _ended(sock: socket.socket) -> bool:
    sock.settimeout(60)  # a second, and room for a busy machine
    try:
        return not sock.recv(100)
    except ConnectionResetError:
        return True
