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

from tests.kit.certificates import make_pair
from tests.kit.product import Product

pytestmark = pytest.mark.product

LONG = 120.0
ANSWERED = 5.0
"""Seconds within which others are answered; the best of a few tries, since the machine may be slow by itself."""


class Besieged(Product):
    """A product of which one address may have 1,000 connections, as its limit of 4,000 in all gives."""

    def __init__(self, pair: tuple[str, str] | None) -> None:
        settings = {"SERVER__MAX_CONNECTIONS": "4000"}
        if pair is not None:
            files = {"SERVER__TLS__CERT_FILE": pair[0], "SERVER__TLS__KEY_FILE": pair[1]}
            settings |= {"SERVER__TLS__ENABLED": "true", **files}
        super().__init__({f"PROXYFLEET_{name}": value for name, value in settings.items()})
        self.context = None if pair is None else ssl.create_default_context(cafile=pair[0])
        if pair is not None:
            self.base_url = f"https://localhost:{self.port}"
            self.session.verify = pair[0]

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
            session.trust_env, session.verify = False, self.session.verify
            return session.post(url, data=body, headers=headers, timeout=LONG).status_code

    def quickest(self, tries: int = 5) -> float:
        """Seconds that a new client waits for an answer."""
        taken = []
        for _ in range(tries):
            began = time.monotonic()
            with requests.Session() as session:
                session.trust_env, session.verify = False, self.session.verify
                assert session.get(f"{self.base_url}/health", timeout=LONG).status_code == 200
            taken.append(time.monotonic() - began)
        return min(taken)


@pytest.fixture(scope="module", params=["plain", "tls"])
def besieged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    secured = request.param == "tls"
    with Besieged(make_pair(tmp_path_factory.mktemp("tls")) if secured else None) as running:
        yield running


@pytest.mark.parametrize(
    "beginning",
    [
        None,
        b"",
        b"GET /health HTTP/1.1\r\nHost: x\r\n",
        b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{",
    ],
    ids=["before TLS", "silent", "half a head", "half a body"],
)
def test_a_thousand_slow_clients_of_many_addresses_stop_no_one(besieged: Besieged, beginning: bytes | None) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with contextlib.ExitStack() as stack:
        for number in range(1000):
            source = f"127.0.0.{2 + number % 50}"
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


def test_an_endless_head_is_ended_by_its_size(besieged: Besieged) -> None:
    with besieged.connect() as endless:
        endless.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        assert status_after(endless, b"X-Fill: " + b"a" * 1000 + b"\r\n") == 431
    assert besieged.quickest() < ANSWERED


def test_an_endless_body_is_ended_by_its_size(besieged: Besieged) -> None:
    with besieged.connect() as endless:
        endless.sendall(
            b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        assert status_after(endless, b"10000\r\n" + b" " * 0x10000 + b"\r\n") == 413
    assert besieged.quickest() < ANSWERED


def status_after(sock: socket.socket, piece: bytes) -> int:
    """The status that comes while pieces are sent without end."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):  # the server has closed
        for _ in range(1000):
            sock.sendall(piece)
    return int(sock.recv(100).split()[1])


@pytest.mark.parametrize(
    "opening", ["[", '{"a":', '{"username":['], ids=["arrays", "objects", "arrays in a field that is known"]
)
def test_deeply_nested_json_is_400_and_costs_no_one_anything(besieged: Besieged, opening: str) -> None:
    body = opening * (60_000 // len(opening))
    assert [besieged.post(body) for _ in range(5)] == [400] * 5
    assert besieged.quickest() < ANSWERED


def test_a_number_of_thousands_of_digits_is_400(besieged: Besieged) -> None:
    body = json.dumps({"username": "x", "password": "y"})[:-1] + ', "n": ' + "9" * 60_000 + "}"
    assert besieged.post(body) == 400


def test_a_request_that_drips_is_ended_by_an_absolute_deadline(besieged: Besieged) -> None:
    with besieged.connect() as dripping:
        dripping.settimeout(0.25)
        began = time.monotonic()
        dripping.sendall(b"GET /health HTTP/1.1\r\nX: ")
        ended = False
        while not ended and time.monotonic() - began < LONG:
            try:
                dripping.sendall(b"a")
                assert dripping.recv(1) == b""
                ended = True
            except TimeoutError:
                continue
            except OSError:  # a reset, where it closed with an octet that it had not read
                ended = True
        assert ended
