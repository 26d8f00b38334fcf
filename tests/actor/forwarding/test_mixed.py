"""`mixed` on real sockets: every protocol at one port, with and without TLS, whole or byte by byte."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress

import pytest

from actors.bus.messages.specs import LimitsSpec
from actors.net.proxy_protocol import build_v1
from tests.actor.forwarding.http_client import get
from tests.actor.forwarding.socks_client import LOOPBACK, address, exactly, reply, responder
from tests.actor.forwarding.tls_client import connect as connect_tls
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, read_head, read_head_alone, responds
from tests.kit.tables import table

SHORT = {"handshake_timeout": 0.5}


@pytest.fixture(scope="module")
def plain() -> Iterator[Rig]:
    with Rig(protocol="mixed") as rig:
        yield rig


@pytest.fixture(scope="module")
def either(pair: tuple[str, str]) -> Iterator[Rig]:
    with Rig(protocol="mixed", tls=pair) as rig:
        yield rig


@pytest.fixture(scope="module")
def short(pair: tuple[str, str]) -> Iterator[Rig]:
    with Rig(protocol="mixed", tls=pair, params=SHORT) as rig:
        yield rig


Send = Callable[[socket.socket, bytes], None]


def whole(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)


def byte_by_byte(sock: socket.socket, data: bytes) -> None:
    for octet in data:
        sock.sendall(bytes((octet,)))


def by_connect(sock: socket.socket, send: Send, origin: Origin) -> None:
    send(sock, f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert read_head_alone(sock).startswith(b"HTTP/1.1 200 ")


def by_socks4(sock: socket.socket, send: Send, origin: Origin) -> None:
    send(sock, b"\x04\x01" + origin.port.to_bytes(2, "big") + LOOPBACK + b"me\0")
    assert exactly(sock, 8)[:2] == b"\0\x5a"


def by_socks5(sock: socket.socket, send: Send, origin: Origin) -> None:
    send(sock, b"\x05\x01\x00")
    assert exactly(sock, 2) == b"\x05\x00"
    send(sock, b"\x05\x01\x00" + address(LOOPBACK, origin.port))
    assert reply(sock)[0] == 0


def without_tls(rig: Rig, _pair: tuple[str, str]) -> socket.socket:
    return socket.create_connection(("127.0.0.1", rig.port), timeout=60)


def with_tls(rig: Rig, pair: tuple[str, str]) -> socket.socket:
    return connect_tls(rig, pair[0])


@table("send", [whole, byte_by_byte])
@table("tunnel", [by_connect, by_socks4, by_socks5])
@table("come", [without_tls, with_tls])
def test_a_tunnel_by_every_protocol(
    either: Rig,
    pair: tuple[str, str],
    come: Callable[..., socket.socket],
    tunnel: Callable[..., None],
    send: Send,
) -> None:
    with Origin(echoes) as origin, come(either, pair) as sock:
        tunnel(sock, send, origin)
        sock.sendall(b"hello")
        assert exactly(sock, 5) == b"hello"


@table("come", [without_tls, with_tls])
def test_requests_of_http_keep_their_connection(
    either: Rig, pair: tuple[str, str], come: Callable[..., socket.socket]
) -> None:
    with Origin(responds(*[counted(b"one")] * 2)) as origin, come(either, pair) as sock:
        for _ in range(2):
            sock.sendall(get(origin))
            assert read_head(sock).endswith(b"one")


def test_a_proxy_without_tls_reads_a_tls_handshake_as_a_malformed_request(plain: Rig) -> None:
    with without_tls(plain, ("", "")) as sock:
        sock.sendall(bytes.fromhex("1603010200010001fc0303") + b"\r\n\r\n")
        assert read_all(sock).startswith(b"HTTP/1.1 400 ")


def test_datagrams_are_relayed_for_a_control_connection_with_tls(either: Rig, pair: tuple[str, str]) -> None:
    with responder() as port, with_tls(either, pair) as control:
        control.sendall(b"\x05\x01\x00")
        assert exactly(control, 2) == b"\x05\x00"
        control.sendall(b"\x05\x03\x00" + address(bytes(4), 0))
        code, relay = reply(control)
        assert code == 0
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as datagrams:
            datagrams.settimeout(15)
            datagrams.sendto(b"\0\0\0" + address(LOOPBACK, port) + b"hello", relay)
            assert datagrams.recv(100).endswith(b"HELLO")


@table("sent", [b"", b"\x16", b"\x05", b"\x04\x01", b"GET "], ids=["nothing", "tls", "5", "4", "http"])
def test_a_client_that_stops_is_given_up_within_the_time_of_a_handshake(short: Rig, sent: bytes) -> None:
    with without_tls(short, ("", "")) as sock:
        sock.sendall(sent)
        with suppress(ConnectionResetError):  # as good an end as any: bytes were left unread
            read_all(sock)
    until(lambda: short.counters is not None and short.counters.active_connections == 0, "it is gone")


def test_clients_that_send_nothing_count_among_the_connections_of_their_address(pair: tuple[str, str]) -> None:
    with Rig(protocol="mixed", tls=pair, limits=LimitsSpec(connections=2)) as rig, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(without_tls(rig, pair))
        with Origin(responds(counted(b"one"))) as origin, without_tls(rig, pair) as one_more:
            one_more.sendall(get(origin))
            assert read_head(one_more).startswith(b"HTTP/1.1 429 ")


def test_the_header_of_a_balancer_comes_before_the_first_byte_of_a_protocol(pair: tuple[str, str]) -> None:
    header = build_v1(("192.0.2.7", 1), ("192.0.2.1", 2))
    with Rig(protocol="mixed", tls=pair, accept_proxy_protocol=True) as rig, Origin(echoes) as origin:
        for tunnel in (by_connect, by_socks4, by_socks5):
            for tls in (False, True):
                sock = without_tls(rig, pair)
                sock.sendall(header)
                if tls:
                    sock = ssl.create_default_context(cafile=pair[0]).wrap_socket(sock, server_hostname="localhost")
                with sock:
                    tunnel(sock, whole, origin)
        until(lambda: sum(record["client_ip"] == "192.0.2.7" for record in list(rig.records)) == 6, "six records")


def test_a_name_alone_is_not_enough_where_there_is_a_password(pair: tuple[str, str]) -> None:
    named = {"auth_username": "me", "auth_hash": "$2b$04$absent"}
    with Rig(protocol="mixed", **named) as rig, Origin(echoes) as origin, without_tls(rig, pair) as sock:
        sock.sendall(b"\x04\x01" + origin.port.to_bytes(2, "big") + LOOPBACK + b"me\0")
        assert exactly(sock, 8)[:2] == b"\0\x5b"
