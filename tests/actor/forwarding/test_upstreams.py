"""A real forwarding actor that reaches its targets through upstreams."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import bcrypt
import pytest

from actors.bus.messages.specs import QueryUpstreams, UpstreamState
from actors.forwarding.access.authenticator import prehash
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, read_head, responds
from tests.kit.upstreams import closed_port, of_rig, upstream_entry, upstream_list

PROTOCOLS = ("http", "https", "socks4", "socks5")
PASSWORD = "s3cret"


@pytest.fixture(scope="module")
def own(pair: tuple[str, str]) -> Iterator[dict[str, Rig]]:
    """One of our own proxies for each protocol, with credentials."""
    hashed = bcrypt.hashpw(prehash(PASSWORD.encode()), bcrypt.gensalt(4)).decode()
    with ExitStack() as stack:
        yield {
            protocol: stack.enter_context(
                Rig(
                    id=f"px-{protocol}",
                    protocol=protocol,
                    tls=pair if protocol == "https" else None,
                    auth_username="up",
                    auth_hash=hashed,
                )
            )
            for protocol in PROTOCOLS
        }


@pytest.fixture(scope="module")
def child() -> Iterator[Rig]:
    with Rig() as shared:
        yield shared


def states(rig: Rig) -> dict[str, UpstreamState]:
    return {state.name: state for state in rig.ask(QueryUpstreams()).states}


@pytest.fixture(params=PROTOCOLS)
def through(request: pytest.FixtureRequest, own: dict[str, Rig], child: Rig, pair: tuple[str, str]) -> Rig:
    """The upstream; `child` goes through it."""
    rig = own[request.param]
    more = {"ca_file": pair[0]} if request.param == "https" else {}
    child.configure(upstreams=upstream_list(of_rig(rig, username="up", password=PASSWORD, **more)))
    return rig


def test_requests_reach_their_origin_through_the_upstream(child: Rig, through: Rig) -> None:
    with Origin(responds(*[counted(b"one")] * 3)) as origin, connect(child) as client:
        for _ in range(3):
            client.sendall(get(origin))
            assert read_response(client)[1] == b"one"
        assert origin.connections == 1
    target = origin.authority if through.spec.protocol.startswith("socks") else f"http://{origin.authority}/"
    assert through.record(target_url=target)["user"] == "up"


def test_tunnels_pass_both_ways_and_half_close_through_the_upstream(child: Rig, through: Rig) -> None:
    with Origin(echoes) as origin, tunnel(child, origin) as client:
        authority = origin.authority
        client.sendall(b"x" * 300_000)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"x" * 300_000
    assert through.record(target_url=authority, method="CONNECT")["parent"] == ""
    name = f"{through.spec.protocol}-{through.port}"
    record = child.record(target_url=authority, method="CONNECT")
    assert (record["parent"], record["reason"]) == (name, "")
    assert states(child)[name].bytes_out > 300_000


def test_what_the_target_says_first_comes_behind_the_handshake(child: Rig, through: Rig) -> None:
    def greets(sock: socket.socket) -> None:
        sock.sendall(b"220 hello")
        read_all(sock)

    with Origin(greets) as origin:
        for _ in range(5):
            with tunnel(child, origin) as client:
                assert client.recv(100) == b"220 hello"


def test_names_are_resolved_by_the_upstream(child: Rig, through: Rig) -> None:
    with connect(child) as client:
        client.sendall(b"CONNECT nowhere.invalid:443 HTTP/1.1\r\nHost: nowhere.invalid:443\r\n\r\n")
        assert read_head(client).split(b" ")[1] in (b"502", b"504")
    assert through.record(target_url="nowhere.invalid:443")["reason"] == "dns_error"


def test_the_next_upstream_takes_over_from_one_that_refuses_and_the_dead_one_is_known(own: dict[str, Rig]) -> None:
    dead, good = upstream_entry(closed_port()), of_rig(own["http"], username="up", password=PASSWORD)
    with Rig(upstreams=upstream_list(dead, good)) as rig, Origin(responds(*[counted(b"one")] * 2)) as origin:
        for _ in range(2):
            with connect(rig) as client:
                client.sendall(get(origin))
                assert read_response(client)[1] == b"one"
        found = states(rig)
        assert (found[dead.name].state, found[dead.name].failures) == ("down", 1)
        assert (found[good.name].state, found[good.name].connections) == ("up", 2)
