"""A proxy that goes out from one address of the machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.socks_client import LOOPBACK, address, arrive, ask, exactly, reply
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, Script, counted, read_head

OURS = "127.0.0.9"
THERE6 = bytes(15) + b"\x01"


@pytest.fixture(scope="module")
def http() -> Iterator[Rig]:
    with Rig(bind_address=OURS) as rig:
        yield rig


@pytest.fixture(scope="module")
def five() -> Iterator[Rig]:
    with Rig(protocol="socks5", bind_address=OURS) as rig:
        yield rig


def notes_peers(seen: list[str]) -> Script:
    """Responds to requests and notes where they come from."""

    def script(sock: socket.socket) -> None:
        while read_head(sock):
            seen.append(sock.getpeername()[0])
            sock.sendall(counted(b"seen"))

    return script


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_requests_and_tunnels_leave_from_it(http: Rig, name: str) -> None:
    seen: list[str] = []
    with Origin(notes_peers(seen)) as origin, connect(http) as client, connect(http) as tunnel:
        client.sendall(get(origin).replace(b"127.0.0.1", name.encode()))
        assert read_response(client)[1] == b"seen"
        tunnel.sendall(f"CONNECT {name}:{origin.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert read_head(tunnel).startswith(b"HTTP/1.1 200 ")
        tunnel.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert read_response(tunnel)[1] == b"seen"
    assert seen == [OURS, OURS]


def test_socks5_replies_with_it(five: Rig) -> None:
    seen: list[str] = []
    with Origin(notes_peers(seen)) as origin:
        sock, code, bound = ask(five, 1, address(LOOPBACK, origin.port))
        with sock:
            assert (code, bound[0]) == (0, OURS)
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert read_response(sock)[1] == b"seen"
    assert seen == [OURS]


def test_bind_listens_at_it(five: Rig) -> None:
    sock, code, bound = ask(five, 2, address(LOOPBACK, 0x1234))
    with sock:
        assert (code, bound[0]) == (0, OURS)
        with socket.create_connection(bound, 15):
            assert reply(sock)[0] == 0


def test_datagrams_leave_from_it(five: Rig) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer, arrive(five) as control:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(15)
        control.sendall(b"\x05\x01\x00\x05\x03\x00" + address(bytes(4), 0))
        assert exactly(control, 2) == b"\x05\x00"
        _code, relay = reply(control)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"\0\0\0" + address(LOOPBACK, peer.getsockname()[1]) + b"hello", relay)
            data, source = peer.recvfrom(100)
            assert (data, source[0]) == (b"hello", OURS)


def test_a_target_of_the_other_family_alone_is_unroutable_and_says_why(http: Rig, five: Rig) -> None:
    with connect(http) as client:
        client.sendall(b"GET http://[::1]:9/ HTTP/1.1\r\nHost: x\r\n\r\n")
        head, body = read_response(client)
        assert head.startswith(b"HTTP/1.1 502 ")
        assert b"error=destination_ip_unroutable" in head
        assert b"another address family" in body
    for command in (1, 2):
        sock, code, _bound = ask(five, command, address(THERE6, 9))
        sock.close()
        assert code == 3


def test_datagrams_to_the_other_family_are_dropped_and_reported(five: Rig) -> None:
    control, _code, relay = ask(five, 3, address(bytes(4), 0))
    with control, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        before = five.counters.values["bytes_in"] if five.counters else 0
        client.sendto(b"\0\0\0" + address(THERE6, 9) + b"hello", relay)
        until(lambda: five.counters is not None and five.counters.values["bytes_in"] > before, "it has come")
    record = five.record(method="UDP", target_url="[::1]:9")
    assert (record["status_code"], record["reason"]) == (502, "destination_ip_unroutable")


def test_ipv6_goes_out_from_ipv6() -> None:
    with Rig(bind_address="::1") as rig, connect(rig) as client, connect(rig) as other:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as origin:
            client.sendall(b"GET http://[::1]:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % origin.getsockname()[1])
            sock, peer = origin.accept()
            with sock:
                assert peer[0] == "::1"
        other.sendall(b"GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_head(other).startswith(b"HTTP/1.1 502 ")


def test_a_change_holds_for_the_next_request_and_connections_from_before_are_not_used_again() -> None:
    seen: list[str] = []
    with Rig() as rig, Origin(notes_peers(seen)) as origin, connect(rig) as client:
        for source in ("", OURS, ""):
            rig.configure(bind_address=source)
            client.sendall(get(origin))
            assert read_response(client)[1] == b"seen"
    assert seen == ["127.0.0.1", OURS, "127.0.0.1"]


def test_an_address_that_is_gone_is_the_proxys_own_failure() -> None:
    with Rig(bind_address="203.0.113.9") as rig, Origin(notes_peers([])) as origin, connect(rig) as client:
        client.sendall(get(origin))
        head, _body = read_response(client)
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"error=proxy_internal_error" in head
