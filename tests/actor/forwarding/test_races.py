"""Moments at which something changes under a connection: its limits, its user, the descriptors that are left."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack

import bcrypt
import psutil
import pytest

from actors.bus.messages.specs import AccountSpec, LimitsSpec
from actors.forwarding.access.authenticator import prehash
from tests.actor.forwarding.account_client import OTHER_HASH, WORD, account, ask, credentials, echo, give
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.socks_client import LOOPBACK, address, arrive, exactly, reply
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, responds
from tests.kit.upstreams import upstream_entry, upstream_list

EARLY = bytes(range(256)) * 8


def signed_in(rig: Rig) -> socket.socket:
    sock = arrive(rig)
    sock.sendall(b"\x05\x01\x02\x01\x03ada" + bytes((len(WORD),)) + WORD.encode())
    assert exactly(sock, 4) == b"\x05\x02\x01\x00"
    return sock


def test_a_connection_that_waits_for_its_share_flows_on_when_it_has_become_a_tunnel(five: Rig) -> None:
    five.configure(accounts=(), auth_required=False, limits=LimitsSpec(bandwidth_in=8192))
    with Origin(echoes) as origin, arrive(five) as sock:
        sock.sendall(b"\x05\x01\x00\x05\x01\x00" + address(LOOPBACK, origin.port) + EARLY)
        assert exactly(sock, 2) == b"\x05\x00"
        assert reply(sock)[0] == 0
        assert exactly(sock, len(EARLY)) == EARLY
    five.configure(limits=LimitsSpec())


@pytest.mark.parametrize(
    "after",
    [(), (account("ada", password_hash=OTHER_HASH),), (account("ada", id="acc_another", password_hash=OTHER_HASH),)],
    ids=["removed", "another password", "another of that name"],
)
def test_who_is_no_user_any_more_between_credentials_and_request_is_refused(
    five: Rig, after: tuple[AccountSpec, ...]
) -> None:
    give(five, account("ada"), account("bob"))
    with Origin(echoes) as origin, signed_in(five) as sock, signed_in(five) as in_time:
        in_time.sendall(b"\x05\x01\x00" + address(LOOPBACK, origin.port))
        assert reply(in_time)[0] == 0
        give(five, *after, account("bob"))
        sock.sendall(b"\x05\x01\x00" + address(LOOPBACK, origin.port))
        assert reply(sock)[0] == 2


def test_a_change_of_something_else_between_credentials_and_request_matters_not(five: Rig) -> None:
    give(five, account("ada"))
    with Origin(echoes) as origin, signed_in(five) as sock:
        give(five, account("ada", limits=LimitsSpec(bandwidth_in=1_000_000)), account("bob"))
        sock.sendall(b"\x05\x01\x00" + address(LOOPBACK, origin.port))
        assert reply(sock)[0] == 0
        echo(sock, b"hello")


def test_a_kept_connection_goes_on_when_credentials_are_wanted_no_more() -> None:
    with Rig() as rig, Origin(responds(*[counted(b"yes")] * 2)) as origin:
        give(rig, account("ada"))
        with connect(rig) as client:
            assert ask(client, origin)[0] == 200
            rig.configure(accounts=(), auth_required=False)
            assert ask(client, origin)[0] == 200


def test_tunnels_without_a_descriptor_for_a_pipe_wait_without_work_and_flow_when_there_is_one() -> None:
    with ExitStack() as stack:
        rig, origin = stack.enter_context(Rig()), stack.enter_context(Origin(echoes))
        tunnels = [stack.enter_context(connect(rig)) for _ in range(4)]
        for sock in tunnels:
            sock.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert b"\r\n\r\n" in sock.recv(1000)
        process = psutil.Process(rig.process.pid)
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        for sock in tunnels:
            sock.sendall(b"hello")
        used = process.cpu_times().user
        tunnels[0].settimeout(2.0)
        with pytest.raises(TimeoutError):
            tunnels[0].recv(100)
        assert process.cpu_times().user - used < 0.25, "it waits, and every retry asks for no further ones"
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        for sock in tunnels:
            sock.settimeout(20)
            assert exactly(sock, 5) == b"hello"


def test_a_name_that_comes_when_no_descriptor_is_left_is_answered_and_the_actor_lives_on() -> None:
    with Rig() as rig, Origin(responds(counted(b"yes"))) as origin, connect(rig) as first, connect(rig) as second:
        until(lambda: rig.counters and rig.counters.values["connections"] == 2, "in")
        before = resource.prlimit(rig.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(rig.process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        first.sendall(b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_response(first)[0].split()[1] in (b"502", b"503")
        resource.prlimit(rig.process.pid, resource.RLIMIT_NOFILE, before)
        second.sendall(get(origin))
        assert read_response(second)[1] == b"yes"


def test_a_client_that_is_gone_before_its_upstream_learns_of_it_harms_no_one() -> None:
    slow = bcrypt.hashpw(prehash(WORD.encode()), bcrypt.gensalt(12)).decode()
    with Rig() as rig, Origin(responds(counted(b"yes"))) as origin:
        give(
            rig,
            account("ada", password_hash=slow),
            upstreams=upstream_list(upstream_entry(origin.port, proxy_protocol="v1")),
        )
        threads = psutil.Process(rig.process.pid).num_threads()
        with connect(rig) as client:
            client.sendall(f"CONNECT a.example:443 HTTP/1.1\r\nHost: x\r\n{credentials('ada')}\r\n\r\nearly".encode())
            until(lambda: psutil.Process(rig.process.pid).num_threads() > threads, "its password is being checked")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        rig.record(method="CONNECT")
        assert rig.process.poll() is None
