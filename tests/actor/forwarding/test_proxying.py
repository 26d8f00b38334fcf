"""A real forwarding actor between real sockets."""

from __future__ import annotations

import base64
import hashlib
import os
import resource
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import bcrypt
import psutil
import pytest

from actors.bus.messages.common import Done, Stop
from actors.bus.messages.forwarding import AllowTestClient
from actors.bus.messages.specs import EgressSpec
from actors.forwarding.access.authenticator import prehash
from tests.actor.forwarding.http_client import BIG, connect, get, read_response, tunnel
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, read_head, read_head_alone, responds
from tests.kit.upstreams import closed_port


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig() as shared:
        yield shared


def test_both_connections_are_used_again(rig: Rig) -> None:
    with Origin(responds(*[counted(b"one")] * 5)) as origin, connect(rig) as client:
        for _ in range(5):
            client.sendall(get(origin))
            assert read_response(client)[1] == b"one"
        assert origin.connections == 1


def test_requests_on_kept_connections_are_counted() -> None:
    with Rig() as rig, Origin(responds(*[counted(b"one")] * 3)) as origin, connect(rig) as client:
        for _ in range(3):
            client.sendall(get(origin))
            assert read_response(client)[1] == b"one"
        until(lambda: rig.counters and rig.counters.values["requests"] == 3, "all are reported")
        assert rig.counters is not None
        assert rig.counters.values["origin_connections_reused"] == 2


def test_an_origin_that_closed_its_idle_connection_is_connected_to_anew(rig: Rig) -> None:
    with Origin(responds(counted(b"one"), then_close=True)) as origin, connect(rig) as client:
        for _ in range(3):
            client.sendall(get(origin))
            assert read_response(client)[1] == b"one"
        assert origin.connections == 3


def test_a_long_answer_arrives_whole_through_the_kernel(rig: Rig) -> None:
    body = os.urandom(1000) * (BIG // 1000)
    with Origin(responds(counted(body), counted(b"next"))) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert hashlib.sha256(read_response(client)[1]).digest() == hashlib.sha256(body).digest()
        client.sendall(get(origin))
        assert read_response(client)[1] == b"next"
    assert rig.record(bytes_in=len(get(origin)), target_url=f"http://{origin.authority}/")["bytes_out"] > BIG


def test_a_long_request_arrives_whole_through_the_kernel(rig: Rig) -> None:
    body = os.urandom(1000) * (BIG // 1000)
    received: list[bytes] = []

    def take(sock: socket.socket) -> None:
        _head, _, start = read_head(sock).partition(b"\r\n\r\n")
        while len(start) < len(body):
            start += sock.recv(1 << 20)
        received.append(start)
        sock.sendall(counted(b"thanks"))

    with Origin(take) as origin, connect(rig) as client:
        put = f"PUT http://{origin.authority}/up HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        client.sendall(put)
        client.sendall(body)
        assert read_response(client)[1] == b"thanks"
    assert received == [body]
    assert rig.record(method="PUT")["bytes_in"] == len(put) + len(body)


def test_an_answer_that_ends_with_its_connection_arrives_whole(rig: Rig) -> None:
    with (
        Origin(responds(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 300_000, then_close=True)) as origin,
        connect(rig) as client,
    ):
        client.sendall(get(origin))
        assert read_all(client).endswith(b"\r\n\r\n" + b"x" * 300_000)


def test_a_truncated_answer_ends_in_a_reset_and_a_record_that_says_so(rig: Rig) -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n" + b"x" * 200_000
    with Origin(responds(cut, then_close=True)) as origin, connect(rig) as client:
        client.sendall(get(origin))
        with pytest.raises(ConnectionResetError):
            read_all(client)
    assert rig.record(target_url=f"http://{origin.authority}/")["reason"] == "http_response_incomplete"


def test_a_tunnel_passes_both_ways_and_half_closes(rig: Rig) -> None:
    payload = os.urandom(1000) * 5000
    with Origin(echoes) as origin, tunnel(rig, origin) as client:
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(read_all(client)))
        reader.start()
        client.sendall(payload)
        client.shutdown(socket.SHUT_WR)
        reader.join(120)
        assert got == [payload]
    record = rig.record(method="CONNECT", target_url=origin.authority)
    assert record["bytes_in"] >= len(payload)
    assert record["bytes_out"] >= len(payload)
    assert record["status_code"] == 200


def test_a_client_that_closes_before_the_last_of_a_tunnel_comes_has_not_failed(rig: Rig) -> None:
    def speak_after_its_end(sock: socket.socket) -> None:
        read_all(sock)
        sock.sendall(b"the end of TLS")
        left.wait(60)

    left = threading.Event()
    with Origin(speak_after_its_end) as origin:
        with tunnel(rig, origin):
            pass
        record = rig.record(method="CONNECT", target_url=origin.authority)
        left.set()
    assert (record["reason"], record["bytes_out"] > 0) == ("", True)


def test_bytes_sent_with_connect_are_delivered_once(rig: Rig) -> None:
    with Origin(echoes) as origin, connect(rig) as client:
        client.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n\r\nearly".encode())
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).endswith(b"\r\n\r\nearly")


def test_an_origin_that_half_closes_first_still_receives_the_client(rig: Rig) -> None:
    received: list[bytes] = []

    def speak_then_listen(sock: socket.socket) -> None:
        sock.sendall(b"bye")
        sock.shutdown(socket.SHUT_WR)
        received.append(read_all(sock))

    with Origin(speak_then_listen) as origin, tunnel(rig, origin) as client:
        assert read_all(client) == b"bye"
        client.sendall(b"still here")
        client.shutdown(socket.SHUT_WR)
        until(lambda: received == [b"still here"], "the origin receives from the client after its own end")


def test_a_slow_reader_does_not_make_the_proxy_hold_the_answer(rig: Rig) -> None:
    body = b"x" * 50_000_000
    process = psutil.Process(rig.process.pid)
    with Origin(responds(counted(body))) as origin, connect(rig) as client:
        before = process.memory_info().rss
        client.sendall(get(origin))
        client.recv(100)
        with connect(rig) as other:
            other.sendall(f"GET http://{origin.authority}/2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert other.recv(100)
        assert process.memory_info().rss - before < 8_000_000


@pytest.mark.parametrize(
    ("piece", "status"),
    [(b"GET / HTTP/1.1\r\n\r\n", b"400"), (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"), (b"A: b\r\n" * 200_000, b"431")],
)
def test_garbage_is_refused_and_others_go_on(rig: Rig, piece: bytes, status: bytes) -> None:
    with Origin(responds(counted(b"fine"))) as origin, connect(rig) as bad, connect(rig) as good:
        sender = threading.Thread(target=lambda: _send_what_goes(bad, piece))
        sender.start()
        assert bad.recv(4096).startswith(b"HTTP/1.1 " + status)
        good.sendall(get(origin))
        assert read_response(good)[1] == b"fine"
        sender.join(120)


def _send_what_goes(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except OSError:
        return  # the proxy has closed, as it should


def test_an_origin_that_refuses_is_502_with_a_record(rig: Rig) -> None:
    port = closed_port()
    with connect(rig) as client:
        client.sendall(f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _ = read_response(client)
    assert b"502" in head
    assert b"error=connection_refused" in head
    assert rig.record(target_url=f"http://127.0.0.1:{port}/")["status_code"] == 502


def test_of_a_name_that_refuses_the_client_gets_the_name_and_the_record_has_the_address(rig: Rig) -> None:
    port = closed_port()
    with connect(rig) as client:
        client.sendall(f"GET http://localhost:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, body = read_response(client)
    assert b"error=connection_refused" in head
    assert f"localhost port {port} refuses connections".encode() in body
    assert b"127.0.0.1" not in head + body
    assert b"::1" not in head + body
    detail = rig.record(target_url=f"http://localhost:{port}/")["detail"]
    assert detail in [f"localhost ({address}) port {port} refuses connections" for address in ("127.0.0.1", "::1")]


def test_an_origin_that_resets_is_502(rig: Rig) -> None:
    def reset(sock: socket.socket) -> None:
        read_head(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        sock.close()

    with Origin(reset) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert b"error=connection_terminated" in read_response(client)[0]


def test_a_name_that_does_not_resolve_is_502(rig: Rig) -> None:
    with connect(rig) as client:
        client.sendall(b"GET http://no-such-name.invalid/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"error=dns_error" in read_response(client)[0]


def test_localhost_by_name_is_resolved_and_reached(rig: Rig) -> None:
    with Origin(responds(counted(b"by name"))) as origin, connect(rig) as client:
        client.sendall(f"GET http://localhost:{origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert read_response(client)[1] == b"by name"


def test_credentials_hold_at_once_for_new_connections_and_for_open_ones_and_drop_none() -> None:
    stored = bcrypt.hashpw(prehash(b"secret"), bcrypt.gensalt(4)).decode()
    basic = "Proxy-Authorization: Basic " + base64.b64encode(b"alice:secret").decode()
    wrong = "Proxy-Authorization: Basic " + base64.b64encode(b"alice:wrong").decode()
    with Rig() as rig, Origin(responds(*[counted(b"in")] * 9)) as origin, connect(rig) as before:
        before.sendall(get(origin))
        assert read_response(before)[1] == b"in"
        rig.configure(auth_username="alice", auth_hash=stored)
        before.sendall(get(origin))
        assert read_response(before)[0].split()[1] == b"407"
        before.sendall(get(origin, "/", basic))
        assert read_response(before)[1] == b"in"
        with connect(rig) as after:
            for field, status in ((wrong, b"407"), ("X: y", b"407"), (basic, b"200"), (basic, b"200")):
                after.sendall(get(origin, "/", field))
                assert read_response(after)[0].startswith(b"HTTP/1.1 " + status)
        assert rig.record(user="alice", status_code=200)["level"] == "info"
        assert rig.record(user="alice", status_code=407)["level"] == "warning"
        assert rig.record(user="", status_code=407)["level"] == "info"
        assert rig.ask(AllowTestClient("~test", "token", 30.0)) == Done()
        once = "Proxy-Authorization: Basic " + base64.b64encode(b"~test:token").decode()
        with connect(rig) as tester:
            for status in (b"200", b"407"):
                tester.sendall(get(origin, "/", once))
                assert read_response(tester)[0].startswith(b"HTTP/1.1 " + status)
        until(lambda: rig.counters and rig.counters.values["auth_failures"] == 4, "the failures are counted")


def test_more_than_max_connections_is_503() -> None:
    with Rig(max_connections=2) as rig, connect(rig), connect(rig):
        until(lambda: rig.counters and rig.counters.active_connections == 2, "two are there")
        with connect(rig) as third:
            assert b"error=connection_limit_reached" in read_all(third)


def test_a_silent_origin_is_504_and_a_silent_tunnel_is_cut_after_the_timeout() -> None:
    with Rig(timeout=1.0) as rig, Origin(lambda sock: read_all(sock) and None) as origin:
        with connect(rig) as client:
            client.sendall(get(origin))
            assert b"error=http_response_timeout" in read_response(client)[0]
        with tunnel(rig, origin) as client:
            assert read_all(client) == b""
        assert rig.record(method="CONNECT")["reason"] == "connection_read_timeout"


def test_the_guard_refuses_special_addresses_and_own_listeners() -> None:
    with Rig(EgressSpec("public_only", (), ())) as rig, Origin(responds(counted(b"no"))) as origin:
        for target in (origin.authority, f"localhost:{origin.port}", f"[::ffff:127.0.0.1]:{origin.port}"):
            with connect(rig) as client:
                client.sendall(f"GET http://{target}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                assert b"error=destination_ip_prohibited" in read_response(client)[0]
        rig.egress = EgressSpec("off", (), (("127.0.0.1", rig.port),))
        rig.configure()
        with connect(rig) as client:
            client.sendall(f"CONNECT 127.0.0.1:{rig.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert read_head(client).startswith(b"HTTP/1.1 403 ")
        assert origin.connections == 0


def test_a_changed_guard_holds_for_connections_kept_from_before() -> None:
    with Rig() as rig, Origin(responds(*[counted(b"x")] * 3)) as origin, connect(rig) as client:
        client.sendall(get(origin))
        assert read_response(client)[1] == b"x"
        rig.egress = replace(rig.egress, allow=())
        rig.configure()
        client.sendall(get(origin))
        assert b"403" in read_response(client)[0]


def test_stop_lets_tunnels_and_answers_end_and_closes_the_listener_at_once() -> None:
    with Rig() as rig, Origin(echoes) as origin, tunnel(rig, origin) as client, connect(rig) as idle:
        until(lambda: rig.counters and rig.counters.active_connections == 2, "both are there")
        rig.stop(drain=30)
        assert read_all(idle) == b""
        client.sendall(b"still")
        assert client.recv(10) == b"still"
        assert rig.process.poll() is None
        client.close()
        assert rig.process.wait(60) == 0
        assert rig.record(method="CONNECT")["status_code"] == 200


def test_the_drain_deadline_cuts_what_is_left() -> None:
    with Rig() as rig, Origin(echoes) as origin, tunnel(rig, origin):
        rig.stop(drain=0.2)
        assert rig.process.wait(60) == 0
        assert rig.record(method="CONNECT")["reason"] == "drain_ended"


def test_a_later_order_to_drain_holds_if_it_ends_sooner() -> None:
    with Rig() as rig, Origin(echoes) as origin, tunnel(rig, origin):
        for seconds in (600, 0.2, 900):
            rig.stop(drain=seconds)
        assert rig.process.wait(60) == 0
        assert rig.record(method="CONNECT")["reason"] == "drain_ended"


def test_the_actor_ends_when_its_supervisor_is_gone() -> None:
    with Rig() as rig:
        os.close(rig._lifeline)
        rig._lifeline = os.open("/dev/null", os.O_RDONLY)
        rig.process.wait(60)


def test_an_origin_that_speaks_first_is_received(rig: Rig) -> None:
    def speak_first(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        read_all(sock)

    with Origin(speak_first) as origin:
        for _ in range(30):
            with connect(rig) as client:
                client.sendall(get(origin))
                assert read_response(client)[0].startswith(b"HTTP/1.1 503 Busy")


def test_a_reader_that_is_slow_but_reads_is_not_cut() -> None:
    body = os.urandom(1000) * 4000
    with Rig(timeout=3.0) as rig, Origin(responds(counted(body))) as origin, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.settimeout(20)
        client.connect(("127.0.0.1", rig.port))
        client.sendall(get(origin))
        got = read_head_alone(client)
        assert got.startswith(b"HTTP/1.1 200 ")
        content = b""
        pause = threading.Event()
        while len(content) < 1_200_000:  # four seconds and more at this pace
            content += client.recv(30_000)
            pause.wait(0.1)
        while part := client.recv(1 << 20):
            content += part
            if len(content) == len(body):
                break
        assert content == body


def test_a_restart_serves_who_has_only_connected_and_cuts_no_answer_short() -> None:
    body = os.urandom(1000) * 60
    patient = {"first_request_timeout": 20}
    with (
        Rig(params=patient) as rig,
        Origin(responds(*[counted(body)] * 2)) as origin,
        connect(rig) as fresh,
        connect(rig) as slow,
    ):
        slow.sendall(get(origin))
        until(lambda: rig.counters and rig.counters.values["requests"] == 1, "the response is on its way")
        assert rig.ask(Stop(30)) == Done()  # it has received that before the request comes
        fresh.sendall(get(origin))
        head, content = read_response(fresh)
        assert b"Connection: close" in head
        assert content == body
        assert read_response(slow)[1] == body
        assert rig.process.wait(60) == 0


def test_names_resolve_again_after_the_descriptors_ran_out() -> None:
    with Rig() as rig, Origin(responds(*[counted(b"x")] * 9)) as origin:
        soft, hard = resource.prlimit(rig.process.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{rig.process.pid}/fd"))
        with connect(rig) as client:
            until(lambda: rig.counters and rig.counters.active_connections == 1, "the client is there")
            resource.prlimit(rig.process.pid, resource.RLIMIT_NOFILE, (used + 2, hard))
            client.sendall(b"GET http://no-such-name.invalid/ HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 50" in read_response(client)[0]
            resource.prlimit(rig.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
            client.sendall(f"GET http://localhost:{origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert read_response(client)[1] == b"x"


def test_without_a_descriptor_for_a_pipe_bulk_waits_and_then_arrives_whole() -> None:
    body = os.urandom(1000) * 3000
    with Rig() as rig, Origin(responds(counted(body))) as origin, connect(rig) as client:
        soft, hard = resource.prlimit(rig.process.pid, resource.RLIMIT_NOFILE)
        until(lambda: rig.counters and rig.counters.active_connections == 1, "the client is there")
        used = len(os.listdir(f"/proc/{rig.process.pid}/fd"))
        resource.prlimit(rig.process.pid, resource.RLIMIT_NOFILE, (used + 1, hard))  # the origin, and nothing more
        client.sendall(get(origin))
        head = read_head_alone(client)
        assert head.startswith(b"HTTP/1.1 200 ")
        resource.prlimit(rig.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
        content = b""
        while len(content) < len(body):
            content += client.recv(1 << 20)
        assert content == body
