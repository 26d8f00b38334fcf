"""Clients that are slow, silent, huge or senseless: closed or refused in time, the others unaffected."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.kit.http_origins import Origin
from tests.kit.product import Product
from tests.kit.tables import table
from tests.kit.wire import Client

pytestmark = pytest.mark.product

HANDSHAKE = 10.0
"""Seconds that a client may take for its head."""

PATIENCE = 3.0
"""What a loaded machine may take longer than promised, as a factor."""


def others_are_served(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        assert client.get(origin.url("/hello")).body == b"hello"


def test_clients_that_send_half_a_head_or_a_byte_a_second_are_let_go_in_time(
    proxy: dict[str, Any], origin: Origin
) -> None:
    head = f"GET {origin.url('/hello')} HTTP/1.1\r\nHost: o\r\nX: {'y' * 1000}\r\n\r\n".encode()
    over, began = threading.Event(), time.monotonic()
    with (
        Client(proxy["port"], timeout=HANDSHAKE * PATIENCE) as silent,
        Client(proxy["port"], timeout=HANDSHAKE * PATIENCE) as dripping,
    ):

        def dribble() -> None:
            for byte in head:
                if over.wait(1):
                    return
                try:
                    dripping.send(bytes([byte]))
                except OSError:
                    return  # let go, as it should be

        thread = threading.Thread(target=dribble)
        thread.start()
        try:
            silent.send(f"GET {origin.url('/hello')} HTTP/1.1\r\nHost:")
            others_are_served(proxy, origin)
            end = silent.rest()
            assert end == b"" or b" 408 " in end.split(b"\r\n")[0]
            assert b" 200 " not in dripping.rest()
        finally:
            over.set()
            thread.join(120)
    assert time.monotonic() - began < HANDSHAKE * PATIENCE


def test_a_head_of_a_megabyte_is_refused_with_431(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        with suppress(OSError):  # it may be refused before all of it was sent
            client.send(f"GET {origin.url('/hello')} HTTP/1.1\r\n" + f"X-Big: {'y' * 8000}\r\n" * 130 + "\r\n")
        response = client.rest()
    # with bytes unread the kernel may reset before the answer is read
    assert response == b"" or b" 431 " in response.split(b"\r\n")[0]
    others_are_served(proxy, origin)


def test_a_head_just_over_the_limit_is_refused_with_431(proxy: dict[str, Any], origin: Origin) -> None:
    with Client(proxy["port"]) as client:
        client.send(f"GET {origin.url('/hello')} HTTP/1.1\r\nHost: o\r\n")
        client.send(f"X-Big: {'y' * 15_000}\r\n" * 5)
        assert b" 431 " in client.head()


@table(
    "garbage",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\x05\x01\x00" + bytes(100) + b"\r\n\r\n",
        b"HELO example.org\r\n\r\n",
        b"GET /origin-form HTTP/1.1\r\nHost: o\r\n\r\n",
        b"GET http://o/ HTTP/9.9\r\nHost: o\r\n\r\n",
        b"GET  http://o/ HTTP/1.1\r\nHost: o\r\n\r\n",
        b"GET http://o/ HTTP/1.1\r\nHost: o\r\nHost: p\r\n\r\n",
        b"POST http://o/ HTTP/1.1\r\nHost: o\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST http://o/ HTTP/1.1\r\nHost: o\r\nContent-Length: +1\r\n\r\n",
        b"POST http://o/ HTTP/1.1\r\nHost: o\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET http://o/ HTTP/1.1\r\nHost: o\r\nX : y\r\n\r\n",
        b"GET http://o/ HTTP/1.1\r\nHost: o\r\nX: a\r\n folded\r\n\r\n",
        b"CONNECT o HTTP/1.1\r\nHost: o\r\n\r\n",
        b"CONNECT o:99999 HTTP/1.1\r\nHost: o:99999\r\n\r\n",
    ],
    ids=lambda garbage: repr(garbage[:60]),
)
def test_what_is_no_request_is_refused_and_closed(proxy: dict[str, Any], origin: Origin, garbage: bytes) -> None:
    with Client(proxy["port"]) as client:
        client.send(garbage)
        response = client.rest()
    assert response == b"" or (response[:9] == b"HTTP/1.1 " and response[9:12] in (b"400", b"405", b"501", b"505"))
    others_are_served(proxy, origin)


def test_random_bytes_from_many_clients_leave_the_proxy_as_it_was(
    product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    for _ in range(50):
        with Client(proxy["port"]) as client:
            client.send(os.urandom(2000) + b"\r\n\r\n")
    others_are_served(proxy, origin)
    assert product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]["pid"] == proxy["runtime"]["pid"]


def test_a_bad_chunk_size_closes_this_connection_only(proxy: dict[str, Any], origin: Origin) -> None:
    for size in (b"-1", b"0x10", b"1_0", b"+1", b"zz", b"ffffffffffffffffff"):
        with Client(proxy["port"]) as client:
            client.send(f"POST {origin.url('/echo')} HTTP/1.1\r\nHost: o\r\nTransfer-Encoding: chunked\r\n\r\n")
            client.send(size + b"\r\nx\r\n0\r\n\r\n")
            assert b" 200 " not in client.rest().split(b"\r\n")[0]
    others_are_served(proxy, origin)


def test_a_hundred_idle_clients_keep_no_one_out(proxy: dict[str, Any], origin: Origin) -> None:
    idle = [Client(proxy["port"]) for _ in range(100)]
    try:
        others_are_served(proxy, origin)
    finally:
        for client in idle:
            client.socket.close()
