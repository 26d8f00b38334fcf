"""Access rules in a real forwarding actor, between real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from actors.bus.messages.specs import AccessSpec, EgressSpec
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_head, responds


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as own:
        yield own


def status_of(rig: Rig, origin: Origin) -> bytes:
    with connect(rig) as client:
        client.sendall(get(origin))
        return read_response(client)[0]


def test_a_denied_target_is_403_with_one_word_everywhere(rig: Rig) -> None:
    with Origin(responds(counted(b"no"))) as origin:
        rig.configure(access=AccessSpec(deny_destinations=("127.0.0.0/8",)))
        head = status_of(rig, origin)
        assert head.startswith(b"HTTP/1.1 403 ")
        assert b"error=http_request_denied" in head
        assert b"; rule=destination_denied" in head
        assert origin.connections == 0
    assert rig.record(reason="destination_denied")["status_code"] == 403
    until(lambda: rig.counters and rig.counters.refusals == {"destination_denied": 1}, "the refusal is counted")
    assert rig.counters is not None
    assert rig.counters.values["denied"] == 1


def test_a_name_is_denied_without_asking_the_resolver(rig: Rig) -> None:
    rig.configure(access=AccessSpec(deny_destinations=("*.invalid",)))
    with connect(rig) as client:
        client.sendall(b"CONNECT no.such.INVALID.:443 HTTP/1.1\r\nHost: no.such.invalid\r\n\r\n")
        assert b"rule=destination_denied" in read_head(client)


def test_a_rule_holds_for_the_next_request_of_a_connection_and_for_pooled_ones(rig: Rig) -> None:
    with Origin(responds(*[counted(b"in")] * 9)) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert read_response(client)[1] == b"in"
        rig.configure(access=AccessSpec(deny_destinations=(f":{origin.port}",)))
        client.sendall(get(origin))
        assert read_response(client)[0].startswith(b"HTTP/1.1 403 ")
        rig.configure(access=AccessSpec())
        client.sendall(get(origin))
        assert read_response(client)[1] == b"in"
        assert origin.connections == 2


def test_an_exchange_under_way_while_a_rule_comes_leaves_nothing_in_the_pool(rig: Rig) -> None:
    def slow(sock: socket.socket) -> None:
        while read_head(sock):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
            begun.append(sock)
            until(lambda: released, "the test lets it go on")
            sock.sendall(b"cd")

    begun: list[socket.socket] = []
    released: list[bool] = []
    with Origin(slow) as origin, connect(rig) as client:
        client.sendall(get(origin))
        until(lambda: begun, "the response has begun")
        rig.configure(access=AccessSpec(deny_destinations=("127.0.0.1",)))
        released.append(True)
        assert read_response(client)[1] == b"abcd"
        client.sendall(get(origin))
        assert read_response(client)[0].startswith(b"HTTP/1.1 403 ")


def test_rules_drop_no_tunnel(rig: Rig) -> None:
    with Origin(echoes) as origin, tunnel(rig, origin) as client:
        rig.configure(access=AccessSpec(deny_destinations=("*",), deny_clients=("127.0.0.1",)))
        client.sendall(b"still here")
        assert client.recv(100) == b"still here"


@pytest.mark.parametrize(
    ("access", "word"),
    [
        (AccessSpec(deny_clients=("127.0.0.0/8",)), "client_denied"),
        (AccessSpec(allow_clients=("192.0.2.0/24",)), "client_not_allowed"),
    ],
    ids=["denied", "not allowed"],
)
def test_a_client_is_refused_at_accept_before_it_says_anything(rig: Rig, access: AccessSpec, word: str) -> None:
    rig.configure(access=access)
    with connect(rig) as client:
        head = read_head(client)
    assert head.startswith(b"HTTP/1.1 403 ")
    assert f"; rule={word}".encode() in head
    record = rig.record(reason=word)
    assert (record["client_ip"], record["status_code"]) == ("127.0.0.1", 403)
    until(lambda: rig.counters and rig.counters.refusals == {word: 1}, "the refusal is counted")
    assert rig.counters is not None
    assert (rig.counters.values["requests"], rig.counters.active_connections) == (0, 0)


def test_report_mode_lets_through_records_and_counts(rig: Rig) -> None:
    with Origin(responds(*[counted(b"in")] * 2)) as origin, connect(rig) as client:
        rig.configure(access=AccessSpec(deny_destinations=("127.0.0.1",), mode="report"))
        for _ in range(2):
            client.sendall(get(origin))
            assert read_response(client)[1] == b"in"
        assert origin.connections == 1
    until(lambda: rig.counters and rig.counters.reported == {"destination_denied": 2}, "both requests are counted")
    assert rig.counters is not None
    assert rig.counters.values["denied"] == 0
    record = rig.record(reason="reported:destination_denied")
    assert (record["status_code"], record["rule"]) == (200, "access.deny_destinations[0] 127.0.0.1")
    assert record["detail"] == "the access rules of this proxy don't allow this target"


def test_report_mode_tells_of_clients_and_tunnels_too(rig: Rig) -> None:
    rig.configure(access=AccessSpec(allow_clients=("192.0.2.1",), mode="report"))
    with Origin(echoes) as origin, tunnel(rig, origin) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    record = rig.record(method="CONNECT", reason="reported:client_not_allowed")
    assert record["status_code"] == 200


def test_the_record_of_a_refusal_has_what_the_client_received_and_the_entry_that_decided() -> None:
    with Rig(access=AccessSpec(deny_destinations=("127.0.0.0/8:1-65535",))) as rig, connect(rig) as client:
        client.sendall(b"GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n\r\n")
        head = read_head(client)
        record = rig.record(status_code=403)
        assert f'details="{record["detail"]}"'.encode() in head
        assert "127.0.0.0/8" in record["rule"]
        assert b"127.0.0.0" not in head
        with connect(rig) as odd:
            odd.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert rig.record(status_code=400)["detail"].encode() in read_head(odd)
    with Rig(egress=EgressSpec("public_only", (), ())) as rig, connect(rig) as client:
        client.sendall(b"GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert rig.record(status_code=403)["rule"] == "egress guard"


def test_a_client_that_is_denied_from_now_on_has_no_further_request_on_its_open_connection() -> None:
    with Rig() as rig, Origin(responds(counted(b"one"))) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert read_response(client)[1] == b"one"
        rig.configure(access=AccessSpec(deny_clients=("127.0.0.0/8",)))
        client.sendall(get(origin))
        assert read_response(client)[0].split()[1] == b"403"
        assert client.recv(1) == b""
        assert rig.record(reason="client_denied")["rule"] == "access.deny_clients[0] 127.0.0.0/8"
