"""SOCKS proxies on real sockets: tunnels, connections that come in, and datagrams."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import psutil
import pytest

from actors.bus.messages.forwarding import ConnectionFilter, QueryConnections
from actors.bus.messages.specs import AccessSpec, EgressSpec
from actors.forwarding.connections.udp_association import PEERS_MAX
from actors.forwarding.connections.udp_targets import FURTHER, TARGETS_MAX, Targets
from actors.forwarding.protocols.commands import Report
from tests.actor.forwarding.socks_client import (
    LOOPBACK,
    address,
    arrive,
    ask,
    datagram_socket,
    exactly,
    reply,
    responder,
)
from tests.kit.forwarding_rig import LOOPBACK_ALLOWED, Rig, until
from tests.kit.scripted_origins import Origin, echoes, read_all
from tests.kit.upstreams import closed_port

NO_ONE_ALLOWED = EgressSpec("public_only", (), ())


@pytest.fixture
def impatient() -> Iterator[Rig]:
    """One that waits for a second alone."""
    with Rig(protocol="socks5", timeout=1.0) as rig:
        yield rig


@pytest.fixture(scope="module")
def four() -> Iterator[Rig]:
    with Rig(protocol="socks4") as rig:
        yield rig


def holds(rig: Rig, kind: str, address: tuple[str, int]) -> bool:
    """Does the actor have a socket of its own at this address? Others may take a port that it has freed."""
    listening = (psutil.CONN_LISTEN, psutil.CONN_NONE)
    sockets = psutil.Process(rig.process.pid).net_connections(kind)
    return any(each.laddr == address and each.status in listening for each in sockets)


# --- CONNECT ---


def test_v5_replies_with_the_address_that_the_origin_sees_and_half_close_passes(five: Rig) -> None:
    seen: list[tuple[str, int]] = []

    def script(sock: socket.socket) -> None:
        seen.append(sock.getpeername())
        assert read_all(sock) == b"question"
        sock.sendall(b"response after your end")
        sock.shutdown(socket.SHUT_WR)

    with Origin(script) as origin:
        sock, code, bound = ask(five, 1, address(LOOPBACK, origin.port))
        with sock:
            assert code == 0
            sock.sendall(b"question")
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock) == b"response after your end"
        assert [bound] == seen
        record = five.record(target_url=origin.authority)
        assert (record["method"], record["status_code"], record["reason"]) == ("CONNECT", 200, "")
        assert record["bytes_in"] == 3 + 10 + len("question")
        assert record["bytes_out"] == 2 + 10 + len("response after your end")


def test_v4_and_v4a_reach_the_origin(four: Rig) -> None:
    with Origin(echoes) as origin:
        port = origin.port.to_bytes(2, "big")
        for sent in (b"\x04\x01" + port + LOOPBACK + b"me\0", b"\x04\x01" + port + b"\0\0\0\x01me\0localhost\0"):
            with arrive(four) as sock:
                sock.sendall(sent + b"early")
                assert exactly(sock, 2) == b"\0\x5a"
                assert exactly(sock, 6)[2:] == LOOPBACK
                assert exactly(sock, 5) == b"early"


@pytest.mark.parametrize("name", [b"localhost", b"127.0.0.1"])
def test_v5_by_name_reaches_the_origin(five: Rig, name: bytes) -> None:
    with Origin(echoes) as origin:
        to = b"\x03" + bytes((len(name),)) + name + origin.port.to_bytes(2, "big")
        sock, code, _bound = ask(five, 1, to)
        with sock:
            assert code == 0
            sock.sendall(b"x")
            assert exactly(sock, 1) == b"x"


def test_v5_to_an_ipv6_target_replies_with_an_ipv6_address(five: Rig) -> None:
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with server:
        sock, code, bound = ask(five, 1, address(bytes(15) + b"\x01", server.getsockname()[1]))
        with sock:
            peer, seen = server.accept()
            peer.close()
            assert (code, bound) == (0, seen[:2])
        five.record(target_url=f"[::1]:{server.getsockname()[1]}", status_code=200)


@pytest.mark.parametrize(("name", "code", "status"), [(b"", 5, 502), (b"no.invalid", 4, 502), (b"127.1", 1, 400)])
def test_v5_says_why_there_is_no_connection(five: Rig, name: bytes, code: int, status: int) -> None:
    port = closed_port()
    to = b"\x03" + bytes((len(name),)) + name + port.to_bytes(2, "big") if name else address(LOOPBACK, port)
    sock, sent, bound = ask(five, 1, to)
    with sock:
        assert (sent, bound) == (code, ("0.0.0.0", 0))
        assert read_all(sock) == b""
    five.record(status_code=status, method="CONNECT")


def test_what_the_guard_prohibits_is_reply_2_and_91_and_a_record_of_403() -> None:
    with Rig(NO_ONE_ALLOWED, protocol="socks5") as rig, Origin(echoes) as origin:
        for to in (address(LOOPBACK, origin.port), address(bytes(10) + b"\xff\xff" + LOOPBACK, origin.port)):
            sock, code, bound = ask(rig, 1, to)
            sock.close()
            assert (code, bound) == (2, ("0.0.0.0", 0))
        record = rig.record(target_url=origin.authority)
        assert (record["status_code"], record["reason"]) == (403, "destination_ip_prohibited")
        sock, code, _bound = ask(rig, 2, address(LOOPBACK, origin.port))
        sock.close()
        assert code == 2
        rig.configure(protocol="socks4")
        with arrive(rig) as sock:
            sock.sendall(b"\x04\x01" + origin.port.to_bytes(2, "big") + LOOPBACK + b"\0")
            assert read_all(sock) == b"\0\x5b\0\0\0\0\0\0"
        assert origin.connections == 0
        until(lambda: rig.counters is not None and rig.counters.values["denied"] == 4, "four denials are counted")


def test_one_client_too_many_receives_it_in_its_protocol() -> None:
    with Rig(protocol="socks5", max_connections=1) as rig:
        with arrive(rig) as first:
            first.sendall(b"\x05\x01\x00")
            assert exactly(first, 2) == b"\x05\x00"
            with arrive(rig) as second:
                assert read_all(second) == b"\x05\xff"
        until(lambda: rig.counters is not None and rig.counters.active_connections == 0, "the first has gone")
        rig.configure(protocol="socks4")
        with arrive(rig) as first:
            first.sendall(b"\x04")
            until(lambda: rig.counters is not None and rig.counters.active_connections == 1, "the first is there")
            with arrive(rig) as second:
                assert read_all(second) == b"\0\x5b\0\0\0\0\0\0"


# --- BIND ---


def test_v5_bind_gives_the_named_peer_to_the_client(five: Rig) -> None:
    sock, code, bound = ask(five, 2, address(LOOPBACK, 21))
    with sock:
        assert (code, bound[0]) == (0, "127.0.0.1")
        with socket.create_connection(bound, 15) as peer:
            assert reply(sock) == (0, peer.getsockname())
            peer.sendall(b"from the peer")
            assert exactly(sock, 13) == b"from the peer"
            sock.sendall(b"back")
            sock.shutdown(socket.SHUT_WR)
            assert read_all(peer) == b"back"
    record = five.record(method="BIND", target_url="127.0.0.1:21", status_code=200)
    assert record["reason"] == ""
    assert not holds(five, "tcp", bound)


def test_v4_bind_has_two_replies_of_eight_octets(four: Rig) -> None:
    with arrive(four) as sock:
        sock.sendall(b"\x04\x02\0\x15" + LOOPBACK + b"me\0")
        first = exactly(sock, 8)
        assert (first[:2], first[4:]) == (b"\0\x5a", LOOPBACK)
        with socket.create_connection(("127.0.0.1", int.from_bytes(first[2:4], "big")), 15) as peer:
            assert exactly(sock, 8) == b"\0\x5a" + peer.getsockname()[1].to_bytes(2, "big") + LOOPBACK
            peer.sendall(b"x")
            assert exactly(sock, 1) == b"x"


def test_bind_closes_others_than_the_named_peer_and_waits_on(five: Rig) -> None:
    sock, code, bound = ask(five, 2, address(b"\x7f\0\0\x02", 0))
    with sock:
        assert code == 0
        with socket.create_connection(bound, 15) as stranger:
            assert read_all(stranger) == b""
        with socket.create_connection(bound, 15, source_address=("127.0.0.2", 0)) as peer:
            assert reply(sock) == (0, peer.getsockname())


def test_bind_to_the_unspecified_address_takes_any_peer(five: Rig) -> None:
    sock, code, bound = ask(five, 2, address(bytes(4), 0))
    with sock:
        assert (code, bound[0]) == (0, "127.0.0.1")
        with socket.create_connection(bound, 15, source_address=("127.0.0.3", 0)) as peer:
            assert reply(sock) == (0, peer.getsockname())


def test_bind_without_a_peer_times_out_with_reply_6_and_stops_listening(impatient: Rig) -> None:
    sock, code, bound = ask(impatient, 2, address(LOOPBACK, 22))
    with sock:
        assert code == 0
        assert reply(sock)[0] == 6
    assert impatient.record(target_url="127.0.0.1:22")["status_code"] == 504
    assert not holds(impatient, "tcp", bound)


def test_bind_ends_with_the_control_connection(five: Rig) -> None:
    sock, _code, bound = ask(five, 2, address(LOOPBACK, 23))
    assert holds(five, "tcp", bound)
    sock.close()
    five.record(target_url="127.0.0.1:23", reason="connection_terminated")
    assert not holds(five, "tcp", bound)


# --- UDP ASSOCIATE ---


@pytest.mark.parametrize("to", ["literal", "name"])
def test_udp_goes_to_its_target_and_the_answer_comes_back_with_its_sender(five: Rig, to: str) -> None:
    with responder() as port, datagram_socket() as client:
        control, code, relay = ask(five, 3, address(bytes(4), 0))
        with control:
            assert (code, relay[0]) == (0, "127.0.0.1")
            target = address(LOOPBACK, port) if to == "literal" else b"\x03\x09localhost" + port.to_bytes(2, "big")
            client.sendto(b"\0\0\0" + target + b"hello", relay)
            response, sender = client.recvfrom(65535)
            assert sender == relay
            assert response == b"\0\0\0" + address(LOOPBACK, port) + b"HELLO"
    record = five.record(method="UDP", target_url=f"{'127.0.0.1' if to == 'literal' else 'localhost'}:{port}")
    assert (record["status_code"], record["reason"]) == (200, "")
    assert record["bytes_in"] == 3 + 10 + len(b"\0\0\0" + target + b"hello")
    assert record["bytes_out"] == 2 + 10 + len(response)


def test_udp_has_a_record_for_each_target_and_live_connections_name_them(five: Rig) -> None:
    refused = "192.0.2.1:9"
    with responder() as one, responder() as other, datagram_socket() as client:
        control, _code, relay = ask(five, 3, address(bytes(4), 0))
        with control:
            client.sendto(b"\0\0\0" + address(bytes((192, 0, 2, 1)), 9) + b"refused", relay)
            for port, word in ((one, b"hello"), (other, b"longer"), (one, b"again")):
                client.sendto(b"\0\0\0" + address(LOOPBACK, port) + word, relay)
                assert client.recv(65535).endswith(word.upper())
            (live,) = (
                each
                for each in five.ask(QueryConnections(ConnectionFilter(), "-age", 100, 0)).connections
                if refused in each.target
            )
            assert live.target == f"{refused}, 127.0.0.1:{one}, 127.0.0.1:{other}"
    first = five.record(method="UDP", target_url=refused)
    assert (first["status_code"], first["reason"]) == (403, "destination_ip_prohibited")
    records = [five.record(method="UDP", target_url=f"127.0.0.1:{port}") for port in (one, other)]
    assert [(each["status_code"], each["bytes_in"], each["bytes_out"]) for each in records] == [
        (200, 2 * 10 + 10, 2 * 10 + 10),
        (200, 10 + 6, 10 + 6),
    ]
    assert first["bytes_in"] == 3 + 10 + 10 + len("refused"), "the handshake is the first target's"


def test_udp_to_more_targets_than_have_records_of_their_own_is_reported_in_one() -> None:
    targets = Targets()
    for number in range(TARGETS_MAX + 5):
        targets.share(b"a.example:%d" % number).bytes_in += 10
    whole = Report(b"UDP", "", 200, "", "", 0.0, 0.0, 7 + 10 * (TARGETS_MAX + 5), 0)
    reports = targets.reports(whole)
    assert len(reports) == TARGETS_MAX + 1
    assert (reports[0].bytes_in, reports[-1].url, reports[-1].bytes_in) == (17, FURTHER, 50)
    assert str(targets).endswith("a.example:7 and 248 more")


def test_udp_to_an_ipv6_target_comes_back_with_an_ipv6_sender(five: Rig) -> None:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with responder("::1") as port, datagram_socket() as client:
        control, _code, relay = ask(five, 3, address(bytes(4), 0))
        with control:
            to = address(bytes(15) + b"\x01", port)
            client.sendto(b"\0\0\0" + to + b"hello", relay)
            assert client.recv(65535) == b"\0\0\0" + to + b"HELLO"


def test_udp_drops_fragments_strangers_and_answers_that_no_one_asked_for(five: Rig) -> None:
    with responder() as port, datagram_socket() as client, datagram_socket() as other:
        control, _code, relay = ask(five, 3, address(bytes(4), 0))
        with control, datagram_socket("127.0.0.2") as stranger:
            to = address(LOOPBACK, port)
            stranger.sendto(b"\0\0\0" + to + b"stranger", relay)
            client.sendto(b"\0\0\x01" + to + b"fragment", relay)
            client.sendto(b"garbage", relay)
            client.sendto(b"\0\0\0" + to + b"first", relay)
            assert client.recv(65535).endswith(b"FIRST")
            other.sendto(b"\0\0\0" + to + b"another port", relay)
            client.sendto(b"\0\0\0" + to + b"last", relay)
            assert client.recv(65535).endswith(b"LAST")
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(65535)


def test_udp_passes_only_answers_of_those_who_were_sent_to(five: Rig) -> None:
    with datagram_socket() as origin, datagram_socket() as other, datagram_socket() as client:
        control, _code, relay = ask(five, 3, address(bytes(4), 0))
        with control:
            client.sendto(b"\0\0\0" + address(LOOPBACK, origin.getsockname()[1]) + b"hello", relay)
            _data, outside = origin.recvfrom(65535)
            other.sendto(b"stranger", ("127.0.0.1", outside[1]))
            origin.sendto(b"response", ("127.0.0.1", outside[1]))
            assert client.recv(65535).endswith(b"response")
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(65535)


def test_udp_forgets_the_peer_that_was_sent_to_longest_ago(five: Rig) -> None:
    with datagram_socket() as first, datagram_socket() as last, datagram_socket("") as others:
        control, _code, relay = ask(five, 3, address(bytes(4), 0))
        with control, datagram_socket() as client:
            for number, peer in enumerate((first, *[others] * (PEERS_MAX - 1), last)):
                host = bytes((127, 1, 0, number)) if peer is others else LOOPBACK
                client.sendto(b"\0\0\0" + address(host, peer.getsockname()[1]) + b"hello", relay)
                _data, outside = peer.recvfrom(65535)
            first.sendto(b"forgotten", ("127.0.0.1", outside[1]))
            last.sendto(b"kept", ("127.0.0.1", outside[1]))
            assert client.recv(65535).endswith(b"kept")


def test_udp_takes_only_the_port_that_the_request_named(five: Rig) -> None:
    with responder() as port, datagram_socket() as client, datagram_socket() as other:
        control, _code, relay = ask(five, 3, address(LOOPBACK, client.getsockname()[1]))
        with control:
            other.sendto(b"\0\0\0" + address(LOOPBACK, port) + b"other", relay)
            client.sendto(b"\0\0\0" + address(LOOPBACK, port) + b"mine", relay)
            assert client.recv(65535).endswith(b"MINE")


def test_udp_ends_with_the_control_connection(five: Rig) -> None:
    control, _code, relay = ask(five, 3, address(bytes(4), 9))
    assert holds(five, "udp", relay)
    control.close()
    assert five.record(method="UDP", target_url="0.0.0.0:9")["reason"] == ""
    assert not holds(five, "udp", relay)


def test_udp_ends_when_nothing_has_moved_for_the_timeout(impatient: Rig) -> None:
    control, _code, _relay = ask(impatient, 3, address(bytes(4), 10))
    with control:
        assert read_all(control) == b""
    assert impatient.record(method="UDP", target_url="0.0.0.0:10")["reason"] == "connection_read_timeout"


def test_udp_to_prohibited_targets_sends_nothing_and_is_reported_as_403() -> None:
    with Rig(NO_ONE_ALLOWED, protocol="socks5") as rig, datagram_socket() as origin, datagram_socket() as client:
        control, _code, relay = ask(rig, 3, address(bytes(4), 0))
        with control:
            client.sendto(b"\0\0\0" + address(LOOPBACK, origin.getsockname()[1]) + b"hello", relay)
            until(lambda: rig.counters is not None and rig.counters.values["bytes_in"] > 13, "the datagram has come")
        record = rig.record(method="UDP")
        assert (record["status_code"], record["reason"]) == (403, "destination_ip_prohibited")
        origin.setblocking(False)
        with pytest.raises(BlockingIOError):
            origin.recv(65535)


def test_a_proxy_that_stops_ends_associations_when_its_time_is_up() -> None:
    with Rig(LOOPBACK_ALLOWED, protocol="socks5") as rig:
        control, _code, _relay = ask(rig, 3, address(bytes(4), 0))
        with control:
            rig.stop(drain=0.2)
            assert read_all(control) == b""
        until(lambda: rig.process.poll() is not None, "the actor has ended")
        assert rig.process.returncode == 0


def test_a_request_with_all_its_data_and_the_end_at_once_is_a_whole_conversation(five: Rig) -> None:
    def script(sock: socket.socket) -> None:
        sock.sendall(read_all(sock)[::-1])
        sock.shutdown(socket.SHUT_WR)

    with Origin(script) as origin, arrive(five) as sock:
        sock.sendall(b"\x05\x01\x00\x05\x01\x00" + address(LOOPBACK, origin.port) + b"abc")
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock)[12:] == b"cba"


def test_a_flood_of_odd_clients_leaves_the_proxy_working(five: Rig) -> None:
    for sent in (
        b"\x05",
        b"\x05\x00",
        b"\x04\x01",
        b"\x05\x01\x00\x05\x01\x00\x03\xff",
        b"\0" * 1000,
        b"\x05\x01\x00" * 99,
    ):
        for _ in range(5):
            with arrive(five) as sock:
                sock.sendall(sent)
    with Origin(echoes) as origin:
        sock, code, _bound = ask(five, 1, address(LOOPBACK, origin.port))
        with sock:
            assert code == 0
    until(lambda: five.counters is not None and five.counters.active_connections == 0, "all have gone")


def test_control_connections_that_talk_on_are_read_and_end_the_association(five: Rig) -> None:
    with responder() as port, datagram_socket() as client:
        control, _code, relay = ask(five, 3, address(bytes(4), 0))
        with control:
            control.sendall(b"x" * 3_000_000)
            client.sendto(b"\0\0\0" + address(LOOPBACK, port) + b"hello", relay)
            assert client.recv(65535).endswith(b"HELLO")
    assert five.record(method="UDP", target_url=f"127.0.0.1:{port}")["reason"] == ""


def test_access_rules_hold_for_connect_bind_and_datagrams_alike() -> None:
    rules = AccessSpec(deny_destinations=("127.0.0.0/8", "localhost"))
    with Rig(protocol="socks5", access=rules) as rig, Origin(echoes) as origin, datagram_socket() as client:
        by_name = b"\x03\x09localhost" + origin.port.to_bytes(2, "big")
        for command, to in ((1, address(LOOPBACK, origin.port)), (1, by_name), (2, address(LOOPBACK, origin.port))):
            sock, code, _bound = ask(rig, command, to)
            sock.close()
            assert code == 2
        sock, code, bound = ask(rig, 2, address(bytes(4), 21))
        with sock, socket.create_connection(bound, 15) as denied:
            assert (code, read_all(denied)) == (0, b"")
        control, _code, relay = ask(rig, 3, address(bytes(4), 0))
        with control:
            before = rig.counters.values["bytes_in"] if rig.counters else 0
            for to in (address(LOOPBACK, origin.port), by_name):
                client.sendto(b"\0\0\0" + to + b"hello", relay)
            until(lambda: rig.counters is not None and rig.counters.values["bytes_in"] > before + 30, "both have come")
        record = rig.record(method="UDP")
        assert (record["status_code"], record["reason"]) == (403, "destination_denied")
        assert rig.record(method="CONNECT")["reason"] == "destination_denied"
        assert origin.connections == 0
