"""The management API under clients that are slow, endless or deep: the others are answered all the same.

Everything twice: in the clear, and by TLS, where another process is in front.
"""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import ssl
import time
from collections.abc import Iterator

import pytest
import requests

from tests.kit.product import Product
from tests.kit.secured_product import SecuredProduct
from tests.kit.tables import table

pytestmark = [pytest.mark.product, pytest.mark.filterwarnings("ignore:Unverified HTTPS request")]

LONG = 120.0
ANSWERED = 5.0
"""Seconds within which others are answered; the best of a few tries, since the machine may be slow by itself."""


class Besieged:
    """A product of which one address may have 1,000 connections, as its limit of 4,000 in all gives."""

    def __init__(self, product: Product, certificate: str | None) -> None:
        self.port = product.port
        self.context = None if certificate is None else ssl.create_default_context(cafile=certificate)
        self.base_url = f"http{'s' if certificate else ''}://localhost:{self.port}"
        self._verify = certificate

    def dial(self, source: str = "127.0.0.1") -> socket.socket:
        """A connection without TLS."""
        return socket.create_connection(("127.0.0.1", self.port), LONG, (source, 0))

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """A connection as a client makes it."""
        plain = self.dial(source)
        return plain if self.context is None else self.context.wrap_socket(plain, server_hostname="localhost")

    def post(self, body: str) -> int:
        """The status of a login with this body, on a connection of its own."""
        headers = {"Content-Type": "application/json"}
        url = f"{self.base_url}/api/v1/auth/login"
        with requests.Session() as session:
            session.trust_env, session.verify = False, self._verify
            return session.post(url, data=body, headers=headers, timeout=LONG).status_code

    def quickest(self, tries: int = 5) -> float:
        """Seconds that a new client waits for an answer."""
        taken = []
        for _ in range(tries):
            began = time.monotonic()
            with requests.Session() as session:
                session.trust_env, session.verify = False, self._verify
                assert session.get(f"{self.base_url}/health", timeout=LONG).status_code == 200
            taken.append(time.monotonic() - began)
        return min(taken)


@pytest.fixture(scope="module", params=["plain", "tls"])
def besieged(request: pytest.FixtureRequest) -> Iterator[Besieged]:
    is_secured = request.param == "tls"
    product = request.getfixturevalue("secured" if is_secured else "product")
    before = product.data("GET", "/settings")["server"]["max_connections"]
    product.data("PATCH", "/settings", {"server": {"max_connections": 4000}})
    yield Besieged(product, str(product.cert) if is_secured else None)
    product.data("PATCH", "/settings", {"server": {"max_connections": before}})


BEGINNINGS = (
    None,
    b"",
    b"GET /health HTTP/1.1\r\nHost: x\r\n",
    b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{",
)
"""What a slow client sends: the beginning of a handshake, nothing, half a head, half a body."""


def test_a_thousand_slow_clients_of_many_addresses_stop_no_one(besieged: Besieged) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with contextlib.ExitStack() as stack:
        for number in range(1000):
            source, beginning = f"127.0.0.{2 + number % 50}", BEGINNINGS[number % len(BEGINNINGS)]
            slow = stack.enter_context(besieged.dial(source) if beginning is None else besieged.connect(source))
            slow.sendall(b"\x16\x03\x01" if beginning is None else beginning)
        assert besieged.quickest() < ANSWERED


def test_one_address_has_only_so_many_connections_and_others_are_served(besieged: Besieged) -> None:
    with contextlib.ExitStack() as stack:
        greedy = [stack.enter_context(besieged.dial("127.0.0.99")) for _ in range(1010)]
        for each in greedy[1005:]:
            each.settimeout(LONG)
            assert each.recv(1) == b""  # closed at once
        assert besieged.quickest() < ANSWERED


HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\n"
BODY = (
    b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@table(
    ("opening", "piece", "status"),
    [(HEAD, b"X-Fill: " + b"a" * 1000 + b"\r\n", 431), (BODY, b"10000\r\n" + b" " * 0x10000 + b"\r\n", 413)],
    ids=["head", "body"],
)
def test_what_is_endless_is_ended_by_its_size(besieged: Besieged, opening: bytes, piece: bytes, status: int) -> None:
    with besieged.connect() as endless:
        endless.sendall(opening)
        assert status_after(endless, piece) == status
    assert besieged.quickest() < ANSWERED


def status_after(sock: socket.socket, piece: bytes) -> int:
    """The status that comes while pieces are sent without end."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):  # the server has closed
        for _ in range(1000):
            sock.sendall(piece)
    return int(sock.recv(100).split()[1])


@table("opening", ["[", '{"a":', '{"username":['], ids=["arrays", "objects", "arrays in a field that is known"])
def test_deeply_nested_json_is_400_and_costs_no_one_anything(besieged: Besieged, opening: str) -> None:
    body = opening * (60_000 // len(opening))
    assert [besieged.post(body) for _ in range(2)] == [400] * 2
    assert besieged.quickest() < ANSWERED


def test_a_number_of_thousands_of_digits_is_400(besieged: Besieged) -> None:
    body = json.dumps({"username": "x", "password": "y"})[:-1] + ', "n": ' + "9" * 60_000 + "}"
    assert besieged.post(body) == 400


def test_requests_that_drip_and_handshakes_that_never_end_are_ended_by_an_absolute_deadline(
    product: Product, secured: SecuredProduct
) -> None:
    with contextlib.ExitStack() as stack:
        unfinished = [socket.create_connection(("127.0.0.1", secured.port), LONG) for _ in range(200)]
        for each in unfinished:
            stack.enter_context(each).sendall(b"\x16\x03\x01")
        dripping = {socket.create_connection(("127.0.0.1", product.port), LONG), secured.connect()}
        for client in dripping:
            stack.enter_context(client).sendall(b"GET /health HTTP/1.1\r\nX: ")
            client.settimeout(0.25)
        assert secured.session.get(f"{secured.base_url}/health", timeout=LONG).status_code == 200
        deadline = time.monotonic() + LONG
        while dripping and time.monotonic() < deadline:
            dripping = {each for each in dripping if not has_ended(each)}
        assert dripping == set()
        assert unfinished[0].recv(1) == b""


def has_ended(dripping: socket.socket) -> bool:
    """Whether it is closed; otherwise it has got another octet."""
    try:
        dripping.sendall(b"a")
        assert dripping.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:  # a reset, where it closed with an octet that it had not read
        return True
    return True
