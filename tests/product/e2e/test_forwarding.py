"""What a client and an origin see of each other through a proxy: RFC 9110, 9112 and 6455 on the wire."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import threading
from typing import Any

import pytest

from tests.kit.http_origins import Origin, scripted
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = pytest.mark.product


def test_a_get_is_answered_with_the_origins_status_and_body(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        response = client.get(origin.url("/hello"))
        assert (response.status, response.body) == (200, b"hello")


def test_what_a_proxy_adds_to_via_changes_for_the_next_request_of_an_open_connection(
    product: Product, origin: Origin
) -> None:
    proxy = product.proxy(headers={"via": "off"})
    with Client(proxy["port"]) as client:
        quiet = client.get(origin.url("/headers"))
        product.data("PATCH", f"/proxies/{proxy['id']}", {"headers": {"via": "pseudonym"}})
        ours = f"1.1 proxyfleet-{proxy['id'][-8:]}"
        wait_until(lambda: "via" in client.get(origin.url("/headers")).fields, "the entry")
        marked = client.get(origin.url("/headers"))
    product.api("DELETE", f"/proxies/{proxy['id']}")
    assert ("via" in quiet.fields, "Via" in dict(json.loads(quiet.body))) == (False, False)
    assert (marked.fields["via"], dict(json.loads(marked.body))["Via"]) == (ours, ours)


def test_many_requests_use_one_connection_of_the_client(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        for _ in range(20):
            assert client.get(origin.url("/hello")).body == b"hello"
        assert client.get(origin.url("/nothing")).status == 404


def test_two_origins_in_turn_on_one_connection_each_get_their_own_requests(
    proxy: dict[str, Any], origin: Origin
) -> None:
    def second(connection: socket.socket) -> None:
        while connection.recv(65536):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond")

    with scripted(second) as port, Client(proxy["port"]) as client:
        for _ in range(3):
            assert client.get(origin.url("/hello")).body == b"hello"
            assert client.get(f"http://127.0.0.1:{port}/").body == b"second"


def test_pipelined_requests_are_answered_in_order(proxy: dict[str, Any], origin: Origin) -> None:
    host = f"Host: 127.0.0.1:{origin.port}\r\n"
    with Client(proxy["port"]) as client:
        client.send(f"GET {origin.url('/hello')} HTTP/1.1\r\n{host}\r\n")
        client.send(f"GET {origin.url('/nothing')} HTTP/1.1\r\n{host}Connection: close\r\n\r\n")
        responses = client.rest()
    assert re.findall(rb"HTTP/1\.1 (\d{3}) ", responses) == [b"200", b"404"]


def test_the_request_reaches_the_origin_in_origin_form_with_its_authority_as_host(
    proxy: dict[str, Any], origin: Origin
) -> None:
    with Client(proxy["port"]) as client:
        client.send(f"GET {origin.url('/headers?q=1')} HTTP/1.1\r\nHost: another.example\r\n\r\n")
        fields = dict(json.loads(client.answer().body))
    assert fields["Host"] == f"127.0.0.1:{origin.port}"
    assert origin.seen[-1][1] == "/headers?q=1"


def test_hop_by_hop_fields_stop_at_the_proxy_in_both_directions(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        sent = (
            "Connection: X-Mine",
            "X-Mine: 1",
            "Proxy-Connection: keep-alive",
            "Keep-Alive: 5",
            "TE: gzip",
            "X-End: 1",
        )
        response = client.get(origin.url("/headers"), *sent)
        arrived = {name.lower() for name, _ in json.loads(response.body)}
        assert "x-end" in arrived
        assert not arrived & {"x-mine", "proxy-connection", "keep-alive", "te", "x-forwarded-for"}
        back = client.get(origin.url("/hop"))
        assert back.fields["x-public"] == "yes"
        assert "x-private" not in back.fields
        assert back.body == b"hop"


def test_head_204_and_304_have_no_body_and_the_connection_goes_on(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        client.send(f"HEAD {origin.url('/megabyte')} HTTP/1.1\r\nHost: 127.0.0.1:{origin.port}\r\n\r\n")
        head = client.answer("HEAD")
        assert (head.status, head.fields["content-length"], head.body) == (200, str(2**20), b"")
        assert client.get(origin.url("/no-content")).status == 204
        assert client.get(origin.url("/not-modified")).status == 304
        assert client.get(origin.url("/hello")).body == b"hello"


def test_a_chunked_answer_arrives_whole_and_the_connection_goes_on(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        assert client.get(origin.url("/chunked")).body == b"one,two,three"
        assert client.get(origin.url("/hello")).body == b"hello"


def test_an_answer_that_ends_with_the_connection_arrives_whole(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        assert client.get(origin.url("/until-close")).body == b"to the end"


def test_a_counted_upload_of_a_megabyte_comes_back_unchanged(proxy: dict[str, Any], origin: Origin) -> None:
    body = os.urandom(2**20)
    with Client(proxy["port"]) as client:
        client.send(f"POST {origin.url('/echo')} HTTP/1.1\r\nHost: o\r\nContent-Length: {len(body)}\r\n\r\n")
        client.send(body)
        assert client.answer("POST").body == body


def test_a_chunked_upload_comes_back_unchanged_and_the_connection_goes_on(
    proxy: dict[str, Any], origin: Origin
) -> None:
    with Client(proxy["port"]) as client:
        client.send(f"POST {origin.url('/echo')} HTTP/1.1\r\nHost: o\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b"first ", b"second"):
            client.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        client.send(b"0\r\n\r\n")
        assert client.answer("POST").body == b"first second"
        assert client.get(origin.url("/hello")).body == b"hello"


def test_expect_100_continue_is_answered_before_the_body_is_sent(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        fields = "Host: o\r\nContent-Length: 4\r\nExpect: 100-continue"
        client.send(f"POST {origin.url('/echo')} HTTP/1.1\r\n{fields}\r\n\r\n")
        assert client.head().startswith(b"HTTP/1.1 100")
        client.send(b"body")
        assert client.answer("POST").body == b"body"


def test_an_http_1_0_client_is_answered_and_the_connection_closed(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        client.send(f"GET {origin.url('/chunked')} HTTP/1.0\r\n\r\n")
        head, _, body = client.rest().partition(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n")[0]
    assert b"chunked" not in head.lower()  # RFC 9112 section 6.1: not to a client of HTTP/1.0
    assert body == b"one,two,three"


def test_upgrade_to_websocket_becomes_a_tunnel(proxy: dict[str, Any], origin: Origin) -> None:
    key = "dGhlIHNhbXBsZSBub25jZQ=="  # the example of RFC 6455 section 1.3
    fields = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}"
    with Client(proxy["port"]) as client:
        client.send(f"GET {origin.url('/websocket')} HTTP/1.1\r\nHost: o\r\n{fields}\r\n\r\n")
        head = client.head()
        assert head.startswith(b"HTTP/1.1 101")
        assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
        for frame in (b"\x81\x85\x00\x00\x00\x00hello", os.urandom(100_000)):
            client.send(frame)
            assert client.exactly(len(frame)) == frame


def test_connect_carries_thirty_two_megabytes_unchanged(proxy: dict[str, Any]) -> None:
    block = os.urandom(2**20)

    def pour(connection: socket.socket) -> None:
        connection.recv(1)
        for _ in range(32):
            connection.sendall(block)

    with scripted(pour) as port, Client(proxy["port"], timeout=60) as client:
        assert b" 200 " in client.connect(f"127.0.0.1:{port}")
        client.send(b"!")
        received = hashlib.sha256(client.exactly(33 * 2**20))
    assert received.hexdigest() == hashlib.sha256(block * 32).hexdigest()


def test_bytes_sent_right_behind_connect_are_delivered_once(proxy: dict[str, Any]) -> None:
    def echo(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            connection.sendall(data)

    with scripted(echo) as port, Client(proxy["port"]) as client:
        client.send(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\nearly")
        assert b" 200 " in client.head()
        assert client.exactly(5) == b"early"
        client.send(b"late")
        assert client.exactly(4) == b"late"


def test_a_half_close_of_the_client_passes_through_a_tunnel(proxy: dict[str, Any]) -> None:
    def count(connection: socket.socket) -> None:
        total = 0
        while data := connection.recv(65536):
            total += len(data)
        connection.sendall(b"%d" % total)

    with scripted(count) as port, Client(proxy["port"]) as client:
        client.connect(f"127.0.0.1:{port}")
        client.send(b"x" * 300_000)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.rest() == b"300000"


def test_a_slow_reader_gets_everything_and_holds_no_one_up(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as slow, Client(proxy["port"]) as quick:
        slow.send(f"GET {origin.url('/megabyte')} HTTP/1.1\r\nHost: o\r\nConnection: close\r\n\r\n")
        for _ in range(5):
            assert quick.get(origin.url("/hello")).body == b"hello"
        assert slow.rest().endswith(b"m" * 2**20)


def test_forty_clients_at_once_are_all_answered(proxy: dict[str, Any], origin: Origin) -> None:
    bodies: list[bytes] = []

    def fetch() -> None:
        with Client(proxy["port"]) as client:
            bodies.extend(client.get(origin.url("/hello")).body for _ in range(5))

    threads = [threading.Thread(target=fetch) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert bodies == [b"hello"] * 200


def test_max_connections_refuses_the_next_client_with_503(product: Product, origin: Origin) -> None:
    proxy = product.proxy(settings={"max_connections": 2})
    with Client(proxy["port"]) as one, Client(proxy["port"]) as two:
        assert [one.get(origin.url("/hello")).status, two.get(origin.url("/hello")).status] == [200, 200]
        with Client(proxy["port"]) as three:
            refused = three.get(origin.url("/hello"))
            assert refused.status == 503
            assert "proxy-status" in refused.fields

    def admitted() -> bool:
        with Client(proxy["port"]) as next_one:
            return next_one.get(origin.url("/hello")).status == 200

    wait_until(admitted, "a client is let in after the others left")
    product.data("DELETE", f"/proxies/{proxy['id']}")
