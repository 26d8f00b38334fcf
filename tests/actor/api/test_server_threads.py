"""The loop and the threads of the HTTP server: no request is lost or overtaken, and no connection holds up another."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from api.server import http_server
from api.server.channel import Channel
from tests.actor.api.server_stage import LARGE, LONG, Stage
from tests.kit.wait import wait_until


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Nothing but an event wakes its loop, which looks at everything once a second in the product."""
    monkeypatch.setattr(http_server, "TURN", 10 * LONG)
    made = Stage()
    made.server._server._next_maintenance = time.monotonic() + 10 * LONG
    yield made
    made.close()


def test_responses_to_requests_that_come_together_keep_their_order(stage: Stage) -> None:
    paths = [f"/{number}" for number in range(300)]
    stage.send(*paths)
    assert stage.bodies(300) == paths


def test_requests_one_after_the_other_are_all_served(stage: Stage) -> None:
    for number in range(300):
        stage.send(f"/{number}")
        assert stage.bodies(1) == [f"/{number}"]


def test_a_request_that_comes_while_another_is_served_waits_for_it(stage: Stage) -> None:
    stage.held()
    stage.send("/next")
    stage.echo.release.set()
    assert stage.bodies(2) == ["/held", "/next"]


def test_a_client_that_has_closed_its_half_gets_its_response(stage: Stage) -> None:
    stage.held()
    stage.client.shutdown(socket.SHUT_WR)
    stage.echo.release.set()
    assert stage.bodies(1) == ["/held"]
    assert stage.client.recv(1) == b""


def test_a_client_that_is_gone_while_its_request_is_served_is_forgotten_after_it(stage: Stage) -> None:
    stage.held()
    stage.client.close()
    stage.echo.release.set()
    wait_until(lambda: not stage.server._server.active_channels, "the connection is closed", LONG)


def test_a_client_that_sends_urgent_data_is_closed_and_the_loop_waits_for_the_others(stage: Stage) -> None:
    stage.send("/first")
    assert stage.bodies(1) == ["/first"]
    stage.client.send(b"!", socket.MSG_OOB)
    with contextlib.suppress(ConnectionResetError):  # the urgent byte was not read
        assert stage.client.recv(1) == b""
    with socket.create_connection(("127.0.0.1", stage.port), LONG) as other:
        other.sendall(b"GET /other HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        with other.makefile("rb") as reader:
            assert reader.read().endswith(b"/other;")


def test_a_body_is_read_and_a_long_response_sent(stage: Stage) -> None:
    head = b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
    for _ in range(3):
        stage.client.sendall(head)
        assert stage.client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        stage.client.sendall(b"x" * 1000)
        assert stage.bodies(1) == ["/body"]
    stage.send("/large")
    received = 0
    while received < LARGE:
        received += len(stage.client.recv(1 << 20))


def test_a_client_that_waits_is_accepted_as_soon_as_there_is_room(stage: Stage) -> None:
    stage.channel()
    stage.server.limit(1)
    with socket.create_connection(("127.0.0.1", stage.port), LONG) as other:
        other.sendall(b"GET /other HTTP/1.1\r\nHost: here\r\n\r\n")
        stage.send("/full")
        assert stage.bodies(1) == ["/full"]
        assert len(stage.server._server.active_channels) == 1
        stage.server.limit(10)
        assert other.recv(1000).endswith(b"/other;")
        stage.server.limit(2)
        with socket.create_connection(("127.0.0.1", stage.port), LONG) as last:
            last.sendall(b"GET /last HTTP/1.1\r\nHost: here\r\n\r\n")
            stage.send("/full")
            assert stage.bodies(1) == ["/full"]
            other.close()
            assert last.recv(1000).endswith(b"/last;")


def test_a_request_asks_no_other_connection_what_it_wants(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Channel] = []
    readable = Channel.readable

    def noted(channel: Channel) -> bool:
        asked.append(channel)
        return readable(channel)

    own = stage.channel()
    with contextlib.ExitStack() as others:
        for _ in range(20):
            others.enter_context(socket.create_connection(("127.0.0.1", stage.port), LONG))
        wait_until(lambda: len(stage.server._server.active_channels) == 21, "all are accepted", LONG)
        stage.send("/settled")
        assert stage.bodies(1) == ["/settled"]
        monkeypatch.setattr(Channel, "readable", noted)
        stage.send("/one")
        assert stage.bodies(1) == ["/one"]
        assert set(asked) == {own}
