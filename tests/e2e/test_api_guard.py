"""The management API under clients that are slow, endless or deep: the others are answered all the same."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import time
from collections.abc import Iterator

import pytest
import requests

from tests.product import Product

pytestmark = pytest.mark.product

LONG = 30.0
ANSWERED = 1.0
"""Seconds within which others are answered; the best of a few tries, since the machine may be slow by itself."""


@pytest.fixture(scope="module")
def besieged() -> Iterator[Product]:
    """A product of which one address may have 1,000 connections, as its limit of 4,000 in all gives."""
    with Product({"PROXYFLEET_SERVER__MAX_CONNECTIONS": "4000"}) as running:
        yield running


def connect(product: Product, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", product.port), LONG, (source, 0))


def quickest(product: Product, tries: int = 5) -> float:
    """Seconds that a new client waits for an answer."""
    taken = []
    for _ in range(tries):
        began = time.monotonic()
        assert requests.get(f"{product.base_url}/health", timeout=LONG).status_code == 200
        taken.append(time.monotonic() - began)
    return min(taken)


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: x\r\n",
        b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{",
    ],
    ids=["silent", "half a head", "half a body"],
)
def test_a_thousand_slow_clients_of_many_addresses_stop_nobody(besieged: Product, beginning: bytes) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with contextlib.ExitStack() as stack:
        for number in range(1000):
            slow = stack.enter_context(connect(besieged, f"127.0.0.{2 + number % 50}"))
            slow.sendall(beginning)
        assert quickest(besieged) < ANSWERED


def test_one_address_has_only_so_many_connections_and_others_are_served(besieged: Product) -> None:
    with contextlib.ExitStack() as stack:
        greedy = [stack.enter_context(connect(besieged, "127.0.0.99")) for _ in range(1010)]
        for each in greedy[1005:]:
            each.settimeout(LONG)
            assert each.recv(1) == b""  # closed at once
        assert quickest(besieged) < ANSWERED


def test_an_endless_head_is_ended_by_its_size(besieged: Product) -> None:
    with connect(besieged) as endless:
        endless.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        assert status_after(endless, b"X-Fill: " + b"a" * 1000 + b"\r\n") == 431
    assert quickest(besieged) < ANSWERED


def test_an_endless_body_is_ended_by_its_size(besieged: Product) -> None:
    with connect(besieged) as endless:
        endless.sendall(
            b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        assert status_after(endless, b"10000\r\n" + b" " * 0x10000 + b"\r\n") == 413
    assert quickest(besieged) < ANSWERED


def status_after(sock: socket.socket, piece: bytes) -> int:
    """The status that comes while pieces are sent without end."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has heard enough
        for _ in range(1000):
            sock.sendall(piece)
    return int(sock.recv(100).split()[1])


@pytest.mark.parametrize(
    "opening", ["[", '{"a":', '{"username":['], ids=["arrays", "objects", "arrays in a field that is known"]
)
def test_deeply_nested_json_is_400_and_costs_nobody_anything(besieged: Product, opening: str) -> None:
    body = opening * (900_000 // len(opening))
    headers = {"Content-Type": "application/json"}
    for _ in range(5):
        answer = requests.post(f"{besieged.base_url}/api/v1/auth/login", data=body, headers=headers, timeout=LONG)
        assert answer.status_code == 400
    assert quickest(besieged) < ANSWERED


def test_a_number_of_a_million_digits_is_400(besieged: Product) -> None:
    body = json.dumps({"username": "x", "password": "y"})[:-1] + ', "n": ' + "9" * 900_000 + "}"
    headers = {"Content-Type": "application/json"}
    answer = requests.post(f"{besieged.base_url}/api/v1/auth/login", data=body, headers=headers, timeout=LONG)
    assert answer.status_code == 400


def test_a_request_that_drips_is_ended_by_an_absolute_deadline(besieged: Product) -> None:
    with connect(besieged) as dripping:
        dripping.settimeout(0.25)
        began = time.monotonic()
        dripping.sendall(b"GET /health HTTP/1.1\r\nX: ")
        while time.monotonic() - began < LONG:
            with contextlib.suppress(TimeoutError):
                assert dripping.recv(1) == b""
                break
            try:
                dripping.sendall(b"a")
            except OSError:
                break
        assert time.monotonic() - began < LONG
