"""The whole product behind a balancer, and with a chosen source address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.wait import wait_until

PROTOCOLS = ("http", "https", "socks4", "socks5")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return dict(zip(("cert_file", "key_file"), make_pair(tmp_path_factory.mktemp("tls")), strict=True))


@contextmanager
def a_proxy(product: Product, protocol: str, tls: dict[str, str], **more: Any) -> Iterator[dict[str, Any]]:
    made = product.proxy(protocol=protocol, **more, **({"tls": tls} if protocol == "https" else {}))
    try:
        yield made
    finally:
        product.api("DELETE", f"/proxies/{made['id']}")


def is_closed(sock: socket.socket) -> bool:
    """Closed with unread bytes is a reset."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_test_of_a_proxy_behind_a_balancer_announces_itself_and_is_an_authorised_client(
    product: Product, origin: Origin, tls: dict[str, str], protocol: str
) -> None:
    password = {} if protocol == "socks4" else {"password": "p@ss:word"}
    auth = {"enabled": True, "username": "ada", **password}
    with a_proxy(product, protocol, tls, accept_proxy_protocol=True, auth=auth) as proxy:
        result = product.data("POST", f"/proxies/{proxy['id']}/test", {"url": origin.url("/hello")})["test_result"]
        assert (result["status"], result["status_code"]) == ("success", 200), result


def test_records_and_statistics_tell_the_announced_client_and_who_was_refused(
    product: Product, origin: Origin, tls: dict[str, str]
) -> None:
    with a_proxy(product, "http", tls, accept_proxy_protocol=True) as proxy:
        where = ("127.0.0.1", proxy["port"])
        with socket.create_connection(where, 20) as client:
            client.sendall(b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n")
            client.sendall(f"GET {origin.url('/hello')} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(where, 20) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert is_closed(client)
        path = f"/logs?proxy_id={proxy['id']}"
        wait_until(lambda: product.data("GET", path)["total"] == 2, "both records")
        refusals = {"proxy_protocol_error": 1}
        wait_until(
            lambda: product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["stats"]["refusals"] == refusals,
            "the refusal is counted",
        )
        logs = product.data("GET", path)["logs"]
        assert {(each["client_ip"], each["reason"]) for each in logs} == {
            ("192.0.2.7", ""),
            ("127.0.0.1", "proxy_protocol_error"),
        }


def test_what_a_proxy_fetches_comes_from_its_source_address(
    product: Product, tls: dict[str, str], origin: Origin
) -> None:
    with a_proxy(product, "http", tls, bind_address="127.0.0.9") as proxy:
        url = origin.url("/hello")
        result = product.data("POST", f"/proxies/{proxy['id']}/test", {"url": url})["test_result"]
        assert (result["status"], result["external_ip"]) == ("success", "127.0.0.9")
