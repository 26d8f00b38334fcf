"""One unforeseen exception in one connection ends that one alone: counted, logged, in its record; the others go on."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from actors.counters import INTERNAL_ERRORS
from actors.forwarding.connections import udp_association
from actors.forwarding.isolation import LOGGED_EVERY, REASON, CrashLog
from actors.forwarding.protocols.session import HANDSHAKE_TIMEOUT
from actors.forwarding.upstreams.http_connect import ConnectHandshake
from tests.actor.forwarding.connection_pages import is_cut
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.actor.forwarding.in_process_actor import Inside
from tests.actor.forwarding.socks_client import LOOPBACK, address, ask, exactly
from tests.kit.forwarding_rig import until
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, responds
from tests.kit.upstreams import upstream_entry, upstream_list


class Unforeseen(Exception):
    """What no code of the product knows of."""


@pytest.fixture
def rig() -> Iterator[Inside]:
    with Inside() as one:
        yield one


@contextmanager
def others_go_on(rig: Inside, caplog: pytest.LogCaptureFixture, crashes: int = 1) -> Iterator[None]:
    """A tunnel and a kept connection that were there before live on, and so does the actor; each crash is counted."""
    with Origin(echoes) as echo, Origin(responds(*[counted(b"fine")] * 2)) as origin:
        with tunnel(rig, echo) as beside, connect(rig) as kept, caplog.at_level(logging.ERROR):
            kept.sendall(get(origin))
            assert read_response(kept)[1] == b"fine"
            yield
            assert rig.inspect(lambda shared: shared.stats.values[INTERNAL_ERRORS]) == crashes
            beside.sendall(b"still here")
            assert exactly(beside, 10) == b"still here"
            kept.sendall(get(origin))
            assert read_response(kept)[1] == b"fine"
        logged = [each for each in caplog.records if each.name == "actors.forwarding.isolation"]
        assert [each.exc_info[0] for each in logged if each.exc_info] == [Unforeseen], "once for each place"
        assert rig.process.poll() is None


def unforeseen(*_args: Any, **_kwargs: Any) -> Any:
    raise Unforeseen


def breaks(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, marker: bytes) -> None:
    """`owner.name` raises when an argument that is bytes has `marker`. Compiled code doesn't call what is put there."""
    real = getattr(owner, name)

    def broken(*args: Any) -> Any:
        if any(marker in each for each in args if isinstance(each, bytes)):
            raise Unforeseen(name)
        return real(*args)

    monkeypatch.setattr(owner, name, broken)


@contextmanager
def broken_dates(rig: Inside) -> Iterator[None]:
    """A response of the proxy's own raises."""
    date: Any = rig.inspect(lambda shared: shared.policy.session.date)

    def put(wall: Any) -> None:
        date._wall, date._until = wall, float("-inf")

    rig.inspect(lambda _shared: put(unforeseen))
    yield
    rig.inspect(lambda _shared: put(time.time))


def test_in_what_the_client_sends(rig: Inside, caplog: pytest.LogCaptureFixture) -> None:
    with others_go_on(rig, caplog), connect(rig) as client, broken_dates(rig):
        client.sendall(b"GET /boom HTTP/1.1\r\n\r\n")
        assert is_cut(client)


def test_in_what_the_origin_sends(rig: Inside, caplog: pytest.LogCaptureFixture) -> None:
    with others_go_on(rig, caplog), Origin(responds(b"boom" * 5 + b"\r\n\r\n")) as origin, connect(rig) as client:
        with broken_dates(rig):
            client.sendall(get(origin, "/from-the-origin"))
            assert is_cut(client)
        assert rig.record(reason=REASON)["target_url"].endswith("/from-the-origin")


def test_in_the_answer_to_a_question(rig: Inside, caplog: pytest.LogCaptureFixture) -> None:
    with others_go_on(rig, caplog), Origin(echoes) as origin, connect(rig) as client:
        with broken_dates(rig):
            client.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert is_cut(client)
        assert rig.record(reason=REASON)["method"] == "CONNECT"


def test_at_a_deadline(rig: Inside, caplog: pytest.LogCaptureFixture) -> None:
    with others_go_on(rig, caplog), connect(rig) as client, broken_dates(rig):
        client.sendall(b"GET http://half.a.head/")
        until(lambda: rig.inspect(lambda shared: len(shared.connections)) == 3, "it is accepted")
        rig.inspect(lambda _shared: setattr(rig.actor.loop, "_clock", lambda: time.monotonic() + HANDSHAKE_TIMEOUT + 1))
        assert is_cut(client)


def test_in_a_tunnel(rig: Inside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with Origin(echoes) as origin, others_go_on(rig, caplog), tunnel(rig, origin) as client:
        with monkeypatch.context() as patched:
            patched.setattr(os, "splice", unforeseen)
            client.sendall(b"hello")
            assert is_cut(client)
        assert rig.record(reason=REASON)["target_url"] == origin.authority


def test_and_when_its_end_fails_as_well(
    rig: Inside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with others_go_on(rig, caplog, crashes=2), connect(rig) as client, broken_dates(rig):
        stats = rig.inspect(lambda shared: shared.stats)
        with monkeypatch.context() as patched:
            patched.setattr(stats, "_add_record", unforeseen)
            client.sendall(b"GET http://127.0.0.1:1/boom HTTP/1.1\r\nHost: x\r\n\r\n")
            assert is_cut(client)
        until(lambda: rig.inspect(lambda shared: len(shared.connections)) == 2, "its place is free")


def test_in_datagrams(monkeypatch: pytest.MonkeyPatch) -> None:
    with Inside(protocol="socks5") as rig, Origin(echoes) as origin:
        other, code, _bound = ask(rig, 1, address(LOOPBACK, origin.port))
        assert code == 0
        control, code, relay = ask(rig, 3, address(LOOPBACK, 0))
        breaks(monkeypatch, udp_association, "read_datagram", b"boom")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, control, other:
            sender.sendto(b"boom", relay)
            assert read_all(control) == b""
            assert rig.record(reason=REASON)["method"] == "UDP"
            other.sendall(b"still here")
            assert exactly(other, 10) == b"still here"


def test_in_what_an_upstream_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    def greets(sock: socket.socket) -> None:
        sock.recv(1000)
        sock.sendall(b"boom")

    breaks(monkeypatch, ConnectHandshake, "feed", b"boom")
    with (
        Origin(greets) as upstream,
        Inside(upstreams=upstream_list(upstream_entry(upstream.port))) as rig,
        connect(rig) as client,
    ):
        client.sendall(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 500 ")
        assert rig.inspect(lambda shared: shared.stats.values[INTERNAL_ERRORS]) >= 1
        assert rig.record(method="CONNECT")["reason"] == REASON
        assert rig.process.poll() is None


def test_the_collector_receives_the_count() -> None:
    with Inside() as rig, connect(rig) as client, broken_dates(rig):
        client.sendall(b"x y\r\n\r\n")
        assert is_cut(client)
        until(lambda: rig.counters and rig.counters.values["internal_errors"] == 1, "it is counted")


def test_exceptions_of_one_place_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    crashes = CrashLog()
    with caplog.at_level(logging.ERROR):
        for now in (0.0, 1.0, LOGGED_EVERY - 1, LOGGED_EVERY + 1):
            try:
                raise Unforeseen
            except Unforeseen as error:
                crashes.add("a connection", error, now)
    assert len(caplog.records) == 2
