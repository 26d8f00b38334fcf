"""The loop and the threads of the HTTP server: no request is lost or overtaken, and no connection holds up another."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.actor.api.server_stage import LONG, Stage
from tests.kit.wait import wait_until


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
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
