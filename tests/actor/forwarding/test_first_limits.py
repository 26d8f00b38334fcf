"""Limits that a proxy gets for the first time reach what is open already: tunnels, downloads, datagrams."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from actors.bus.messages.specs import LimitsSpec
from tests.actor.forwarding.account_client import account, credentials, echo, give, states
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.socks_client import LOOPBACK, address, exactly, reply
from tests.actor.forwarding.tls_client import connect as connect_tls
from tests.kit.certificates import make_pair
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, read_head_alone, responds

RATE = 400_000
MUCH = 200_000
"""Bytes that take half a second at this rate."""
LEAST = 0.3


def tunnel(sock: Any, origin: Origin, *fields: str) -> Any:
    lines = (f"CONNECT {origin.authority} HTTP/1.1", "Host: x", *fields, "", "")
    sock.sendall("\r\n".join(lines).encode())
    assert read_head_alone(sock).startswith(b"HTTP/1.1 200 ")
    return sock


def seconds_for_much(sock: Any) -> float:
    """How long many bytes take to the echo and back, a window of them at a time."""
    began = time.monotonic()
    for _ in range(MUCH // 20_000):
        echo(sock, b"x" * 20_000)
    return time.monotonic() - began


@pytest.mark.parametrize("direction", ["bandwidth_in", "bandwidth_out"])
def test_a_tunnel_that_is_open_keeps_to_the_first_rate_and_is_free_again_without_it(rig: Rig, direction: str) -> None:
    with Origin(echoes) as origin, connect(rig) as client:
        sock = tunnel(client, origin)
        echo(sock, b"before")
        rig.configure(limits=LimitsSpec(**{direction: RATE}))
        assert seconds_for_much(sock) > LEAST
        rig.configure(limits=LimitsSpec(**{direction: 1024}))
        sock.sendall(b"y" * 100_000)  # would take a minute and a half
        rig.configure(limits=LimitsSpec())
        assert exactly(sock, 100_000) == b"y" * 100_000


def test_so_does_one_within_tls_that_is_copied(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    with ExitStack() as stack:
        rig = stack.enter_context(Rig(protocol="https", tls=pair))
        origin = stack.enter_context(Origin(echoes))
        sock = tunnel(stack.enter_context(connect_tls(rig, pair[0])), origin)
        echo(sock, b"before")
        rig.configure(limits=LimitsSpec(bandwidth_out=RATE))
        assert seconds_for_much(sock) > LEAST


def test_a_download_that_is_under_way_keeps_to_the_first_rate_and_its_connection_goes_on(rig: Rig) -> None:
    body = b"x" * 30_000_000
    with Origin(responds(counted(body), counted(b"yes"))) as origin, connect(rig) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.sendall(get(origin))
        assert b" 200 " in read_head_alone(client)
        rig.configure(limits=LimitsSpec(bandwidth_out=RATE))
        taken, began = 0, time.monotonic()
        while time.monotonic() - began < 0.5:
            taken += len(client.recv(1 << 20))
        assert taken < len(body) - 5_000_000, "above the rate comes no more than what the kernel's buffers had"
        rig.configure(limits=LimitsSpec())
        assert exactly(client, len(body) - taken) == body[taken:]
        client.sendall(get(origin))
        assert read_response(client)[1] == b"yes"


def test_the_request_that_is_under_way_is_not_counted_and_the_next_ones_are(rig: Rig) -> None:
    with Origin(responds(*[counted(b"yes")] * 3)) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert read_response(client)[1] == b"yes"
        rig.configure(limits=LimitsSpec(requests_per_minute=1))
        for status in (b" 200 ", b" 429 "):
            client.sendall(get(origin))
            assert status in read_response(client)[0]


def test_a_tunnel_from_before_the_first_account_is_nobodys_whatever_its_user_said(rig: Rig) -> None:
    with Origin(echoes) as origin, connect(rig) as client:
        sock = tunnel(client, origin, credentials("ada"))
        give(rig, account("ada", quota=1_000, limits=LimitsSpec(connections=1)))
        echo(sock, b"x" * 50_000)
        assert states(rig)["acc_ada"].usage.bytes_in == 0
        with connect(rig) as other:
            tunnel(other, origin, credentials("ada"))
        echo(sock, b"x")


def test_datagrams_of_an_association_that_is_open_wait_for_the_first_rate() -> None:
    with (
        Rig(protocol="socks5") as five,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own,
        connect(five) as control,
    ):
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(20)
        control.sendall(b"\x05\x01\x00")
        assert exactly(control, 2) == b"\x05\x00"
        control.sendall(b"\x05\x03\x00" + address(b"\0\0\0\0", 0))
        _, relay = reply(control)
        head = b"\0\0\0" + address(LOOPBACK, peer.getsockname()[1])
        own.sendto(head + b"first", relay)
        assert peer.recv(2000) == b"first"
        five.configure(limits=LimitsSpec(bandwidth_in=20_000))
        began = time.monotonic()
        for _ in range(12):
            own.sendto(head + b"x" * 1000, relay)
        for _ in range(12):
            assert len(peer.recv(2000)) == 1000
        assert time.monotonic() - began > 0.35


def test_a_tunnel_at_its_end_is_delivered_whole_though_limits_came_meanwhile(rig: Rig) -> None:
    with Origin(echoes) as origin, connect(rig) as client:
        sock = tunnel(client, origin)
        sock.settimeout(20)
        sock.sendall(b"x" * 100_000)
        rig.configure(limits=LimitsSpec(bandwidth_out=RATE))
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock) == b"x" * 100_000
        assert rig.record(method="CONNECT")["bytes_out"] >= 100_000
