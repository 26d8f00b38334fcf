"""`localhost` and names below it are loopback by definition (RFC 6761 6.3); what is disclosed of a name's address."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actors.bus.messages.specs import EgressSpec
from tests.actor.forwarding.http_client import connect, read_response
from tests.kit.forwarding_rig import Rig
from tests.kit.tables import table

NAMES = ("localhost", "localhost.", "x.localhost", "X.LocalHost.")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Rig]:
    with Rig(EgressSpec("public_only", (), ())) as rig:
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
