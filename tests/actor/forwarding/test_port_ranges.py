"""A proxy that listens at many ports: it serves at each of them, and says at which one a client came."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from actors.bus.messages.forwarding import ConnectionFilter, Explain
from actors.bus.messages.specs import AccessSpec, PolicySpec, RuleSpec
from actors.forwarding.fleet_objects import FleetObjects
from actors.supervision.processes.zygote import DESCRIPTORS_MAX
from tests.actor.forwarding.connection_pages import is_cut, page
from tests.actor.forwarding.http_client import get, read_response
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, counted, echoes, read_head_alone, responds
from tests.kit.tables import table
from tests.kit.wait import wait_until

MANY = DESCRIPTORS_MAX + 10
"""More than one packet to the zygote carries."""


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(ports=MANY) as rig:
        yield rig


def arrive(rig: Rig, number: int) -> socket.socket:
    """A client at the port of this number."""
    return socket.create_connection(("127.0.0.1", rig.port + number), timeout=20)


@table("number", [0, 1, DESCRIPTORS_MAX - 2, DESCRIPTORS_MAX - 1, DESCRIPTORS_MAX, MANY - 1])
def test_each_port_is_served_and_recorded(rig: Rig, number: int) -> None:
    with Origin(responds(counted(b"yes"))) as origin, arrive(rig, number) as client:
        client.sendall(get(origin, f"/{number}"))
        assert read_response(client)[1] == b"yes"
        assert rig.record(target_url=f"http://{origin.authority}/{number}")["listen_port"] == rig.port + number


def test_tunnels_have_the_port_while_they_live_and_in_their_record(rig: Rig) -> None:
    with Origin(echoes) as origin, ExitStack() as stack:
        for number in (3, 3, 5):
            client = stack.enter_context(arrive(rig, number))
            client.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: {origin.authority}\r\n\r\n".encode())
            assert read_head_alone(client).startswith(b"HTTP/1.1 200 ")
        live = page(rig, ConnectionFilter(target=origin.authority), sort="age").connections
        assert sorted(each.listen_port for each in live) == [rig.port + 3, rig.port + 3, rig.port + 5]
        assert page(rig, ConnectionFilter(listen_port=rig.port + 3)).total == 2
        assert page(rig, ConnectionFilter(listen_port=rig.port + 4)).total == 0
    assert rig.record(method="CONNECT", target_url=origin.authority)["listen_port"] in (rig.port + 3, rig.port + 5)


def test_a_client_that_sends_nothing_yet_has_the_port(rig: Rig) -> None:
    with arrive(rig, 7):
        wait_until(lambda: page(rig, ConnectionFilter(listen_port=rig.port + 7)).total == 1, "it is listed")


def test_a_client_that_is_rejected_is_recorded_with_the_port(rig: Rig) -> None:
    rig.configure(access=AccessSpec(deny_clients=("127.0.0.1",)))
    with arrive(rig, 9) as client:
        client.sendall(b"GET http://a.example/ HTTP/1.1\r\n\r\n")
        assert b" 403 " in client.recv(1000)
    assert rig.record(reason="client_denied")["listen_port"] == rig.port + 9
    rig.configure(access=AccessSpec())


def test_the_port_of_a_client_behind_a_balancer_is_the_one_that_the_balancer_came_to(rig: Rig) -> None:
    rig.configure(accept_proxy_protocol=True)
    with Origin(responds(counted(b"yes"))) as origin, arrive(rig, 11) as client:
        client.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.8 40000 3128\r\n" + get(origin, "/balanced"))
        assert read_response(client)[1] == b"yes"
        record = rig.record(target_url=f"http://{origin.authority}/balanced")
        assert (record["client_ip"], record["listen_port"]) == ("192.0.2.7", rig.port + 11)
    rig.configure(accept_proxy_protocol=False)


def test_an_actor_that_is_to_end_accepts_at_no_port() -> None:
    with Rig(ports=3) as rig:
        rig.stop(0.5)
        with arrive(rig, 0) as first, arrive(rig, 2) as last:  # the supervisor's sockets queue them for the next one
            rig.process.wait(60)
            for listener in rig.listeners:
                listener.close()
            assert is_cut(first)
            assert is_cut(last)


def test_rules_of_a_policy_judge_by_the_port(rig: Rig) -> None:
    low = (rig.port, rig.port + 9)
    rules = (
        RuleSpec("docs at low ports", listen_ports=(low,), paths=("/docs*",), use="direct"),
        RuleSpec("nothing else there", listen_ports=(low,), use="deny"),
    )
    rig.configure(FleetObjects(policies=(PolicySpec("policy_1", "office", rules),)), policy="office")
    for number, path, status in ((0, "/docs", 200), (9, "/other", 403), (10, "/other", 200)):
        with Origin(responds(counted(b"yes"))) as origin, arrive(rig, number) as client:
            client.sendall(get(origin, path))
            assert read_response(client)[0].startswith(f"HTTP/1.1 {status} ".encode())
    said = rig.ask(Explain("127.0.0.1", None, "http://127.0.0.1/other", listen_port=rig.port + 10))
    assert (said.decision, said.rules[1].why) == ("allow", f"listen_ports: {rig.port + 10} is none of them")
    assert rig.ask(Explain("127.0.0.1", None, "http://127.0.0.1/other", listen_port=rig.port)).decision == "deny"


def test_a_tunnel_ends_when_its_port_is_no_longer_allowed(rig: Rig) -> None:
    rig.configure(FleetObjects(policies=(PolicySpec("policy_1", "office", ()),)), policy="office")
    with Origin(echoes) as origin, ExitStack() as stack:
        clients = [stack.enter_context(arrive(rig, number)) for number in (1, 2)]
        for client in clients:
            client.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: {origin.authority}\r\n\r\n".encode())
            assert read_head_alone(client).startswith(b"HTTP/1.1 200 ")
        rules = (RuleSpec("closed", listen_ports=((rig.port + 1, rig.port + 1),), use="deny"),)
        rig.configure(FleetObjects(policies=(PolicySpec("policy_1", "office", rules, revision=2, ended=1),)))
        assert is_cut(clients[0])
        clients[1].sendall(b"still here")
        assert clients[1].recv(100) == b"still here"
    rig.configure(FleetObjects(), policy="")
