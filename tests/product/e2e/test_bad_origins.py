"""Origins that refuse, reset, hang or don't exist: 502 or 504 with `Proxy-Status`, and a record that says why."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from tests.kit.http_origins import Origin, scripted
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Answer, Client

pytestmark = pytest.mark.product


def reset(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang(connection: socket.socket) -> None:
    while connection.recv(65536):
        continue


def senseless(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"\x00\x01 this is not HTTP\r\n\r\n")


def cut_short(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")


def fetch(proxy: dict[str, Any], url: str) -> Answer:
    with Client(proxy["port"], timeout=30) as client:
        return client.get(url)


def recorded(product: Product, proxy: dict[str, Any], url: str, status: int) -> dict[str, Any]:
    """The record of this request through this proxy, which must say why."""

    def found() -> list[dict[str, Any]]:
        logs: list[dict[str, Any]] = product.data("GET", f"/logs?proxy_id={proxy['id']}&limit=1000")["logs"]
        return [entry for entry in logs if entry["target_url"] == url]

    entry = wait_until(found, f"the record of {url} is found")[0]
    assert entry["status_code"] == status
    assert entry["reason"]
    return entry


def test_a_refused_connection_is_502(product: Product, proxy: dict[str, Any]) -> None:
    url = f"http://127.0.0.1:{product.free_port()}/"
    response = fetch(proxy, url)
    assert response.status == 502
    assert "connection_refused" in response.fields["proxy-status"]
    assert recorded(product, proxy, url, 502)["reason"] == "connection_refused"


def test_a_name_that_does_not_resolve_is_502(product: Product, proxy: dict[str, Any]) -> None:
    url = "http://no-such-host.invalid/"
    response = fetch(proxy, url)
    assert response.status == 502
    assert "dns_error" in response.fields["proxy-status"]
    assert recorded(product, proxy, url, 502)["reason"] == "dns_error"


def test_a_reset_is_502(product: Product, proxy: dict[str, Any]) -> None:
    with scripted(reset) as port:
        url = f"http://127.0.0.1:{port}/"
        response = fetch(proxy, url)
        assert response.status == 502
        assert "proxy-status" in response.fields
        recorded(product, proxy, url, 502)


def test_an_answer_that_is_not_http_is_502(product: Product, proxy: dict[str, Any]) -> None:
    with scripted(senseless) as port:
        url = f"http://127.0.0.1:{port}/"
        response = fetch(proxy, url)
        assert response.status == 502
        assert "http_protocol_error" in response.fields["proxy-status"]
        recorded(product, proxy, url, 502)


def test_an_origin_that_hangs_is_504_after_the_proxys_timeout(product: Product) -> None:
    proxy = product.proxy(settings={"timeout": 1})
    with scripted(hang) as port:
        url = f"http://127.0.0.1:{port}/"
        response = fetch(proxy, url)
        assert response.status == 504
        assert "proxy-status" in response.fields
        recorded(product, proxy, url, 504)
    product.data("DELETE", f"/proxies/{proxy['id']}")


def test_a_body_cut_short_is_never_passed_off_as_whole(proxy: dict[str, Any]) -> None:
    with scripted(cut_short) as port, Client(proxy["port"]) as client:
        client.send(f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: o\r\n\r\n")
        whole = client.rest()
    assert b"Content-Length: 100" in whole
    assert whole.endswith(b"only this")


def test_connect_to_a_closed_port_is_502(product: Product, proxy: dict[str, Any]) -> None:
    target = f"127.0.0.1:{product.free_port()}"
    with Client(proxy["port"]) as client:
        head = client.connect(target)
    assert b" 502 " in head.split(b"\r\n")[0]
    assert b"connection_refused" in head
    recorded(product, proxy, target, 502)


def test_a_bad_origin_leaves_the_others_alone(product: Product, proxy: dict[str, Any], origin: Origin) -> None:
    with scripted(hang) as port, Client(proxy["port"]) as waiting:
        waiting.send(f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: o\r\n\r\n")
        assert fetch(proxy, origin.url("/hello")).body == b"hello"
