"""A proxy that speaks TLS to its clients (`curl -x https://…`)."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.actor.forwarding.tls_client import connect
from tests.kit.certificates import make_ended_pair, make_pair
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, read_head, read_head_alone, responds


@pytest.fixture(scope="module")
def rig(pair: tuple[str, str]) -> Iterator[Rig]:
    with Rig(protocol="https", tls=pair) as shared:
        yield shared


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_pass_and_the_connection_is_kept(rig: Rig, pair: tuple[str, str], version: ssl.TLSVersion) -> None:
    with Origin(responds(*[counted(b"one")] * 3)) as origin, connect(rig, pair[0], maximum_version=version) as client:
        assert client.selected_alpn_protocol() == "http/1.1"
        for _ in range(3):
            client.sendall(f"GET http://{origin.authority}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert read_head(client).endswith(b"one")


def test_tls_1_1_is_refused(rig: Rig, pair: tuple[str, str]) -> None:
    context = ssl.create_default_context(cafile=pair[0])
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    sock = socket.create_connection(("127.0.0.1", rig.port), timeout=60)
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(sock, server_hostname="localhost")


@pytest.mark.parametrize("size", [30_000, 70_000, 200_000])
def test_an_answer_of_which_much_comes_in_its_first_read_arrives_whole(
    rig: Rig, pair: tuple[str, str], size: int
) -> None:
    body = os.urandom(size)
    with Origin(responds(counted(body))) as origin, connect(rig, pair[0]) as client:
        client.sendall(f"GET http://{origin.authority}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        response = read_head(client)
        while not response.endswith(body):
            received = client.recv(1 << 20)
            assert received
            response += received


def test_long_answers_and_requests_arrive_whole(rig: Rig, pair: tuple[str, str]) -> None:
    body = os.urandom(1000) * 5000

    def swallow(sock: socket.socket) -> None:
        _head, _, start = read_head(sock).partition(b"\r\n\r\n")
        while len(start) < len(body):
            start += sock.recv(1 << 20)
        sock.sendall(counted(start))

    with Origin(swallow) as origin, connect(rig, pair[0]) as client:
        head = f"POST http://{origin.authority}/ HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        response = read_head(client)
        while len(response) < len(body):
            response += client.recv(1 << 20)
        assert response.partition(b"\r\n\r\n")[2] == body


def test_a_tunnel_within_tls_passes_both_ways(rig: Rig, pair: tuple[str, str]) -> None:
    payload = os.urandom(1000) * 2000
    with Origin(echoes) as origin, connect(rig, pair[0]) as client:
        client.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert read_head(client).startswith(b"HTTP/1.1 200 ")
        got = b""
        for start in range(0, len(payload), 100_000):
            client.sendall(payload[start : start + 100_000])
            while len(got) < start + 100_000:
                got += client.recv(1 << 20)
        assert got == payload


def test_an_origin_that_half_closes_first_is_received_to_its_end_and_still_receives_the_client(
    rig: Rig, pair: tuple[str, str]
) -> None:
    received: list[bytes] = []

    def speak_then_listen(sock: socket.socket) -> None:
        sock.sendall(b"bye")
        sock.shutdown(socket.SHUT_WR)
        received.append(read_all(sock))

    with Origin(speak_then_listen) as origin, connect(rig, pair[0]) as client:
        client.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert read_head_alone(client).startswith(b"HTTP/1.1 200 ")
        assert read_all(client) == b"bye"
        client.sendall(b"still here")
        client.unwrap().close()
        until(lambda: received == [b"still here"], "the origin receives from the client after its own end")


@pytest.mark.parametrize("garbage", [b"GET http://127.0.0.1/ HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 500])
def test_what_is_not_tls_is_closed_and_others_go_on(rig: Rig, pair: tuple[str, str], garbage: bytes) -> None:
    with Origin(responds(counted(b"fine"))) as origin, connect(rig, pair[0]) as good:
        with socket.create_connection(("127.0.0.1", rig.port), timeout=60) as bad:
            bad.sendall(garbage)
            try:
                while bad.recv(4096):
                    pass
            except ConnectionResetError:
                bad.close()
        good.sendall(f"GET http://{origin.authority}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert read_head(good).endswith(b"fine")


def _name_of(rig: Rig) -> str:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", rig.port), timeout=60) as sock, context.wrap_socket(sock) as tls:
        der = tls.getpeercert(binary_form=True)
    assert der is not None
    return next((name for name in ("first", "second", "ended") if name.encode() in der), "?")


def _name_if_served(rig: Rig) -> str:
    """As `_name_of`; empty while clients are rejected."""
    try:
        return _name_of(rig)
    except OSError:
        return ""


def test_a_changed_certificate_is_used_and_a_broken_one_is_not(tmp_path: Path) -> None:
    pair = make_pair(tmp_path)
    rig_of_pair = Rig(protocol="https", tls=pair)
    with rig_of_pair as rig, Origin(responds(*[counted(b"x")] * 2)) as origin, connect(rig, pair[0]) as before:
        Path(pair[0]).write_text("not a certificate")
        until(lambda: _name_of(rig) == "first" and rig.problems, "the last good one is used, and the other reported")
        assert "must begin with -----BEGIN CERTIFICATE-----" in rig.problems["certificate", ""]
        assert rig.reports[-1].problems[0].serves
        make_pair(tmp_path, "second")
        until(lambda: _name_of(rig) == "second" and not rig.problems, "the new one is used, and all is well")
        before.sendall(f"GET http://{origin.authority}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert read_head(before).endswith(b"x")


def test_without_a_certificate_clients_are_turned_away_and_never_spoken_to_in_clear() -> None:
    with Rig(protocol="https", tls=None) as rig, socket.socket() as client:
        until(lambda: rig.problems, "a report")
        assert rig.problems == {("certificate", ""): "clients are rejected: there is no certificate"}
        assert not rig.reports[-1].problems[0].serves
        client.settimeout(20)
        client.connect(("127.0.0.1", rig.port))
        client.sendall(b"GET http://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            assert client.recv(100) == b""
        except ConnectionResetError:
            client.close()


def test_a_pair_that_appears_after_the_start_is_used_for_a_client_and_ends_the_problem(tmp_path: Path) -> None:
    pair = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    with Rig(protocol="https", tls=pair) as rig:
        until(lambda: rig.problems, "a report")
        make_pair(tmp_path)
        until(lambda: _name_if_served(rig) == "first", "it serves")
        until(lambda: rig.problems == {}, "the problem is over")
        assert rig.reports[-1].certificate_ends == pytest.approx(time.time() + 30 * 86_400, abs=300)


def test_a_certificate_that_has_ended_is_served_but_reported(tmp_path: Path) -> None:
    with Rig(protocol="https", tls=make_ended_pair(tmp_path)) as rig:
        until(lambda: rig.problems, "a report")
        assert _name_of(rig) == "ended"
        assert "ended at " in rig.problems["certificate", ""]


def test_a_certificate_that_has_ended_does_not_take_the_place_of_one_that_has_not(tmp_path: Path) -> None:
    with Rig(protocol="https", tls=make_pair(tmp_path)) as rig:
        assert _name_of(rig) == "first"
        make_ended_pair(tmp_path)
        until(lambda: _name_of(rig) == "first" and rig.problems, "the good one goes on")
        assert "is not used, the one before is: cert_file: ended at " in rig.problems["certificate", ""]
