"""`localhost` and names below it are loopback by definition (RFC 6761 6.3); what is disclosed of a name's address."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from actors.bus.messages.specs import AccessSpec, EgressSpec
from tests.actor.forwarding.http_client import connect, read_response
from tests.kit.forwarding_rig import LOOPBACK_ALLOWED, Rig
from tests.kit.scripted_origins import Origin, counted, responds
from tests.kit.tables import table

NAMES = ("localhost", "localhost.", "x.localhost", "X.LocalHost.")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Rig]:
    with Rig(EgressSpec("public_only", (), ())) as rig:
        yield rig


@pytest.fixture(scope="module")
def socks() -> Iterator[Rig]:
    with Rig(EgressSpec("public_only", (), ()), protocol="socks5") as rig:
        yield rig


def response(rig: Rig, host: str, port: int) -> tuple[bytes, bytes]:
    with connect(rig) as client:
        client.sendall(f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return read_response(client)


@table("host", NAMES)
def test_a_client_receives_the_guards_403_for_the_name_and_not_its_address(guarded: Rig, host: str) -> None:
    head, body = response(guarded, host, 80)
    assert head.startswith(b"HTTP/1.1 403 ")
    assert b"error=destination_ip_prohibited" in head
    assert b"127.0.0.1" not in head + body
    assert b"::1" not in head + body
    assert host.lower().encode() in (head + body).lower()


def test_a_client_that_wrote_an_address_learns_of_it(guarded: Rig) -> None:
    assert b"127.0.0.1 is not a public address" in b"".join(response(guarded, "127.0.0.1", 80))


@table("host", NAMES)
def test_socks_refuses_them_by_its_rule(socks: Rig, host: str) -> None:
    with socket.create_connection(("127.0.0.1", socks.port), 20) as client:
        client.sendall(b"\5\1\0")
        assert client.recv(2) == b"\5\0"
        client.sendall(b"\5\1\0\3" + bytes([len(host)]) + host.encode() + b"\0\x50")
        assert client.recv(2) == b"\5\2"


def test_rules_by_name_hold_where_loopback_is_excepted() -> None:
    with Origin(responds(counted(b"yes"))) as origin, Rig(LOOPBACK_ALLOWED) as rig:
        assert response(rig, "x.localhost", origin.port)[1] == b"yes"
        rig.configure(access=AccessSpec(allow_destinations=("y.localhost",)))
        assert response(rig, "y.localhost", origin.port)[1] == b"yes"
        assert b"rule=destination_not_allowed" in response(rig, "x.localhost", origin.port)[0]
