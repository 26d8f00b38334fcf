"""Clients that don't get to their request: given up in time on every protocol, without holding up anybody."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.actor.forwarding.http_client import connect, get
from tests.actor.forwarding.tls_client import connect as connect_tls
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, read_all, read_head, responds

SHORT = {"handshake_timeout": 1.0}
CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(32)
"""The beginning of one: a record of 512 octets is announced, and not all of it comes."""


def is_cut(sock: socket.socket) -> bool:
    try:
        read_all(sock)
    except ConnectionResetError:
        return True
    return True


@pytest.fixture(scope="module")
def https(pair: tuple[str, str]) -> Iterator[Rig]:
    with Rig(protocol="https", tls=pair, params=SHORT) as rig:
        yield rig


@pytest.fixture(scope="module")
def patient(pair: tuple[str, str]) -> Iterator[Rig]:
    """One that gives a slow machine the time for a handshake."""
    with Rig(protocol="https", tls=pair, params={"handshake_timeout": 10.0}) as rig:
        yield rig


@pytest.fixture(scope="module")
def five() -> Iterator[Rig]:
    with Rig(protocol="socks5", params=SHORT, auth_username="me", auth_hash="$2b$04$absent") as rig:
        yield rig


def open_now(rig: Rig) -> int:
    return rig.counters.active_connections if rig.counters else -1


def test_tls_handshakes_that_stop_are_given_up(https: Rig) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(https)) for _ in range(3)]
        for client, sent in zip(clients, (b"", CLIENT_HELLO[:1], CLIENT_HELLO), strict=True):
            client.sendall(sent)
        assert all(map(is_cut, clients))
    until(lambda: open_now(https) == 0, "they are gone")


def test_a_tls_handshake_that_drips_is_given_up_before_it_is_complete(https: Rig) -> None:
    with connect(https) as client:
        client.sendall(CLIENT_HELLO)
        client.settimeout(0.05)
        sent = 0
        while sent < 400 and not drip(client):
            sent += 1
    assert 0 < sent < 400, "the record of 512 octets was waited for"


def drip(client: socket.socket) -> bool:
    """Send one octet more. Is the connection over?"""
    try:
        client.sendall(b"\0")
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_finished_tls_handshake_without_a_request_is_given_up(patient: Rig, pair: tuple[str, str]) -> None:
    with connect_tls(patient, pair[0]) as client:
        client.settimeout(120)
        assert is_cut(client)


def test_others_are_served_meanwhile(patient: Rig, pair: tuple[str, str]) -> None:
    with ExitStack() as stack, Origin(responds(counted(b"fine"))) as origin:
        for _ in range(20):
            stack.enter_context(connect(patient)).sendall(CLIENT_HELLO)
        with connect_tls(patient, pair[0]) as client:
            client.sendall(get(origin))
            assert read_head(client).endswith(b"fine")


def test_socks5_handshakes_that_stop_are_given_up(five: Rig) -> None:
    wanted = b"\x05\x01\x02"
    received = {
        b"": b"",
        b"\x05": b"",
        b"\x05\x02\x00": b"",
        wanted: b"\x05\x02",
        wanted + b"\x01\x02me\x05pas": b"\x05\x02",
    }
    with ExitStack() as stack:
        clients = {sent: stack.enter_context(connect(five)) for sent in received}
        for sent, client in clients.items():
            client.sendall(sent)
        assert {sent: read_all(client) for sent, client in clients.items()} == received
    until(lambda: open_now(five) == 0, "they are gone")


def test_a_socks5_client_that_gets_no_further_than_its_greeting_is_given_up() -> None:
    requests = (b"", b"\x05\x01", b"\x05\x01\x00\x03\x09local")
    with Rig(protocol="socks5", params=SHORT) as rig, ExitStack() as stack:
        clients = [stack.enter_context(connect(rig)) for _ in requests]
        for client, request in zip(clients, requests, strict=True):
            client.sendall(b"\x05\x01\x00" + request)
        for client in clients:
            assert read_all(client)[:2] == b"\x05\x00"


def test_socks4_handshakes_that_stop_are_given_up() -> None:
    sent = (b"", b"\x04\x01", b"\x04\x01\0\x50\x7f\0\0\x01endless", b"\x04\x01\0\x50\0\0\0\x01me\0local")
    with Rig(protocol="socks4", params=SHORT) as rig, ExitStack() as stack:
        clients = [stack.enter_context(connect(rig)) for _ in sent]
        for client, beginning in zip(clients, sent, strict=True):
            client.sendall(beginning)
        for client in clients:
            assert read_all(client) in (b"", b"\0\x5b" + bytes(6))
        until(lambda: open_now(rig) == 0, "all are gone")


def test_an_http_head_that_stops_gets_408_with_a_date() -> None:
    with Rig(params=SHORT) as rig, connect(rig) as client:
        client.sendall(b"GET http://a.example/ HTTP/1.1\r\nHost:")
        response = read_all(client)
        assert response.startswith(b"HTTP/1.1 408 ")
        assert b"\r\nDate: " in response
