"""Proxies behind a balancer: a header of the PROXY protocol comes first, and names the client."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from actors.bus.messages.forwarding import (
    CloseConnections,
    ConnectionFilter,
    ConnectionPage,
    ConnectionsEnded,
    QueryConnections,
)
from actors.bus.messages.specs import AccessSpec
from actors.net.proxy_protocol import LOCAL_V2, build_v1, build_v2
from tests.actor.forwarding.socks_client import LOOPBACK, address, exactly, reply
from tests.kit.certificates import make_pair
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, read_head, responds
from tests.kit.tables import table

CLIENT, BALANCER = ("192.0.2.7", 56324), ("198.51.100.1", 443)
ANNOUNCED = build_v2(CLIENT, BALANCER)
ALL = ConnectionFilter()
SHORT = {"handshake_timeout": 0.5}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(accept_proxy_protocol=True) as shared:
        yield shared


def arrive(rig: Rig) -> socket.socket:
    return socket.create_connection(("127.0.0.1", rig.port), 60)


def get(origin: Origin, path: str = "") -> bytes:
    return f"GET http://{origin.authority}/{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def connections(rig: Rig) -> ConnectionPage:
    response = rig.ask(QueryConnections(ALL, "age", 100, 0))
    assert isinstance(response, ConnectionPage)
    return response


HEADERS = {
    "v1": build_v1(CLIENT, BALANCER),
    "v2": ANNOUNCED,
    "v2-with-a-checksum": build_v2(CLIENT, BALANCER, checksum=True),
}


@table("how", HEADERS)
def test_the_announced_client_is_the_client_and_what_follows_in_the_same_piece_is_its_request(
    rig: Rig, how: str
) -> None:
    with Origin(responds(counted(b"one"), counted(b"two"))) as origin, arrive(rig) as client:
        client.sendall(HEADERS[how] + get(origin, how))
        assert read_head(client).endswith(b"one")
        client.sendall(get(origin, "again"))
        assert read_head(client).endswith(b"two")
        record = rig.record(target_url=f"http://{origin.authority}/{how}")
        assert (record["client_ip"], record["bytes_in"]) == ("192.0.2.7", len(get(origin, how)))
        assert [each.client for each in connections(rig).connections] == ["192.0.2.7"]


def test_a_header_may_come_octet_by_octet(rig: Rig) -> None:
    with Origin(responds(counted(b"fine"))) as origin, arrive(rig) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for octet in build_v1(("2001:db8::7", 1), ("2001:db8::1", 2)) + get(origin, "slow"):
            client.sendall(bytes((octet,)))
        assert read_head(client).endswith(b"fine")
        assert rig.record(target_url=f"http://{origin.authority}/slow")["client_ip"] == "2001:db8::7"


def test_a_connection_that_the_balancer_makes_for_itself_is_its_own(rig: Rig) -> None:
    with Origin(responds(counted(b"fine"))) as origin, arrive(rig) as client:
        client.sendall(LOCAL_V2 + get(origin, "check"))
        assert read_head(client).endswith(b"fine")
        assert rig.record(target_url=f"http://{origin.authority}/check")["client_ip"] == "127.0.0.1"


@table(
    "sent",
    [
        b"GET http://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
        b"\x05\x01\x00",
        ANNOUNCED[:12] + b"\x31" + ANNOUNCED[13:],
    ],
)
def test_what_begins_otherwise_is_closed_without_a_word_and_recorded(rig: Rig, sent: bytes) -> None:
    before = len(refusals(rig))
    with arrive(rig) as client:
        client.sendall(sent)
        assert is_closed(client)
    record = until(lambda: refusals(rig)[before:], "a record")[0]
    assert (record["client_ip"], record["status_code"]) == ("127.0.0.1", 400)
    until(
        lambda: rig.counters is not None and rig.counters.refusals.get("proxy_protocol_error", 0) == before + 1,
        "it is counted",
    )


def refusals(rig: Rig) -> list[dict[str, object]]:
    return [record for record in list(rig.records) if record["reason"] == "proxy_protocol_error"]


def is_closed(sock: socket.socket) -> bool:
    """Closed with unread bytes is a reset."""
    try:
        return sock.recv(100) == b""
    except ConnectionResetError:
        return True


def test_an_end_within_the_header_is_reported_and_one_before_it_is_not(rig: Rig) -> None:
    before = len(refusals(rig))
    arrive(rig).close()
    with arrive(rig) as client:
        client.sendall(ANNOUNCED[:20])
        client.shutdown(socket.SHUT_WR)
        assert is_closed(client)
    until(lambda: connections(rig).total == 0, "all have gone")
    until(lambda: len(refusals(rig)) > before, "a record")
    assert len(refusals(rig)) == before + 1


def test_silence_and_half_a_header_are_closed_in_time_and_reported() -> None:
    with Rig(params=SHORT, accept_proxy_protocol=True) as rig, arrive(rig) as silent, arrive(rig) as slow:
        slow.sendall(b"PROXY TCP4 ")
        assert is_closed(silent)
        assert is_closed(slow)
        until(lambda: len(rig.records) == 2, "two records")
        assert {(r["reason"], r["status_code"]) for r in rig.records} == {("proxy_protocol_timeout", 408)}


def test_access_rules_judge_the_announced_client_and_not_the_balancer() -> None:
    rules = AccessSpec(allow_clients=("192.0.2.0/24",))
    with Rig(access=rules, accept_proxy_protocol=True) as rig, Origin(responds(counted(b"fine"))) as origin:
        with arrive(rig) as client:
            client.sendall(ANNOUNCED + get(origin))
            assert read_head(client).endswith(b"fine")
        for header, who in ((build_v1(("198.51.100.9", 1), BALANCER), "198.51.100.9"), (LOCAL_V2, "127.0.0.1")):
            with arrive(rig) as client:
                client.sendall(header + get(origin))
                assert read_all(client).startswith(b"HTTP/1.1 403 ")
            assert rig.record(client_ip=who)["reason"] == "client_not_allowed"
        assert origin.connections == 1


def test_a_wait_for_a_header_holds_a_place_and_can_be_looked_at_and_ended() -> None:
    with Rig(accept_proxy_protocol=True, max_connections=1) as rig, Origin(echoes) as origin, ExitStack() as stack:
        silent = stack.enter_context(arrive(rig))
        until(lambda: connections(rig).total == 1, "it is open")
        [seen] = connections(rig).connections
        assert (seen.state, seen.client, seen.target) == ("announcing", "127.0.0.1", "")
        with arrive(rig) as second:
            assert read_all(second).startswith(b"HTTP/1.1 503 ")
        assert rig.ask(CloseConnections(seen.id, ALL)) == ConnectionsEnded(1)
        assert is_closed(silent)
        client = stack.enter_context(arrive(rig))
        client.sendall(ANNOUNCED + f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n\r\nearly".encode())
        assert read_head(client).startswith(b"HTTP/1.1 200 ")
        [seen] = connections(rig).connections
        assert (seen.state, seen.client) == ("tunnel", "192.0.2.7")


def test_an_actor_that_is_to_end_serves_whom_it_has_let_in_and_waits_for_no_header_long() -> None:
    rig = Rig(accept_proxy_protocol=True, params={"first_request_timeout": 5.0})
    with rig, Origin(responds(counted(b"fine"))) as origin:
        with arrive(rig) as client, arrive(rig) as silent:
            until(lambda: connections(rig).total == 2, "both are open")
            rig.stop(drain=300)
            client.sendall(ANNOUNCED + get(origin))
            assert read_all(client).endswith(b"fine")
            assert is_closed(silent)
        until(lambda: rig.process.poll() is not None, "the actor has ended")
        assert rig.process.returncode == 0


def test_a_change_holds_for_the_next_connection() -> None:
    with Rig() as rig, Origin(responds(*[counted(b"fine")] * 2)) as origin, arrive(rig) as before:
        before.sendall(get(origin))
        assert read_head(before).endswith(b"fine")
        rig.configure(accept_proxy_protocol=True)
        before.sendall(get(origin))
        assert read_head(before).endswith(b"fine")
        with arrive(rig) as client:
            client.sendall(get(origin))
            assert is_closed(client)


def test_tls_begins_behind_the_header(tmp_path_factory: pytest.TempPathFactory) -> None:
    pair = make_pair(tmp_path_factory.mktemp("tls"))
    with (
        Rig(protocol="https", tls=pair, accept_proxy_protocol=True) as rig,
        Origin(responds(counted(b"fine"))) as origin,
    ):
        sock = arrive(rig)
        sock.sendall(ANNOUNCED)
        with ssl.create_default_context(cafile=pair[0]).wrap_socket(sock, server_hostname="localhost") as client:
            client.sendall(get(origin))
            assert read_head(client).endswith(b"fine")
        assert rig.record(status_code=200)["client_ip"] == "192.0.2.7"
        with arrive(rig) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
            ssl.create_default_context(cafile=pair[0]).wrap_socket(plain, server_hostname="localhost")
        assert rig.record(reason="proxy_protocol_error")["status_code"] == 400


def test_curl_announces_itself(rig: Rig) -> None:
    """Its `--haproxy-protocol` is meant for servers; towards a proxy it sends the line first too."""
    with Origin(responds(counted(b"fine"))) as origin:
        command = ["curl", "-sS", "--max-time", "20", "--haproxy-protocol", f"http://127.0.0.1:{rig.port}/"]
        command += ["--request-target", f"http://{origin.authority}/curl", "--header", f"Host: {origin.authority}"]
        done = subprocess.run(command, capture_output=True, check=False)
        assert (done.stdout, done.stderr) == (b"fine", b"")
        assert rig.record(target_url=f"http://{origin.authority}/curl")["client_ip"] == "127.0.0.1"


def test_socks4_serves_the_announced_client() -> None:
    with Rig(protocol="socks4", accept_proxy_protocol=True) as rig, Origin(echoes) as origin:
        with arrive(rig) as client:
            client.sendall(ANNOUNCED + b"\x04\x01" + origin.port.to_bytes(2, "big") + LOOPBACK + b"me\0early")
            assert exactly(client, 8)[1] == 0x5A
            assert exactly(client, 5) == b"early"
        assert rig.record(target_url=origin.authority)["client_ip"] == "192.0.2.7"


def test_socks5_takes_datagrams_from_the_announced_client_alone() -> None:
    with Rig(protocol="socks5", accept_proxy_protocol=True) as rig, ExitStack() as stack:
        client = stack.enter_context(arrive(rig))
        client.sendall(build_v2(("127.0.0.2", 1), BALANCER) + b"\x05\x01\x00\x05\x03\x00" + address(bytes(4), 0))
        assert exactly(client, 2) == b"\x05\x00"
        code, relay = reply(client)
        assert code == 0
        peer, balancer, announced = (
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(3)
        )
        for sock, host in ((peer, "127.0.0.1"), (balancer, "127.0.0.1"), (announced, "127.0.0.2")):
            sock.bind((host, 0))
            sock.settimeout(20)
        to = b"\0\0\0" + address(LOOPBACK, peer.getsockname()[1])
        balancer.sendto(to + b"not the client", relay)
        announced.sendto(to + b"the client", relay)
        data, source = peer.recvfrom(100)
        assert data == b"the client"
        peer.sendto(b"back", source)
        assert announced.recv(100).endswith(b"back")
        client.close()
        assert rig.record(method="UDP")["client_ip"] == "127.0.0.2"
