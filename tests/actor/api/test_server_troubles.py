"""The HTTP server with clients that read slowly or vanish, and with errors of its own: each costs its connection at
most, and no thread, no memory and no other connection."""

from __future__ import annotations

import errno
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from waitress.buffers import TempfileBasedBuffer

from api.server.channel import HEAD_TIMEOUT, IDLE_TIMEOUT, MIN_SEND_RATE, SEND_WINDOW, Channel, ChannelPhase
from tests.actor.api.server_stage import LARGE, LONG, Stage
from tests.kit.wait import wait_until

TOGETHER = 6
"""Requests for a large response that are sent at once."""


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.server.http_server.TURN", 0.05)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


@pytest.fixture
def narrow_stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """With one thread."""
    monkeypatch.setattr("api.server.http_server.THREADS", 1)
    made = Stage()
    yield made
    made.close()


def read(client: socket.socket) -> bytes:
    """All that comes up to the end."""
    with client.makefile("rb") as reader:
        return reader.read()


def response_to(stage: Stage, path: str) -> bytes:
    """On a connection of its own."""
    with socket.create_connection(("127.0.0.1", stage.port), LONG) as other:
        other.sendall(f"GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
        return read(other)


def test_large_responses_to_requests_that_come_together_wait_for_their_reader_without_a_thread(
    narrow_stage: Stage,
) -> None:
    stage = narrow_stage
    stage.send(*["/large"] * TOGETHER, "/last")
    wait_until(lambda: stage.channel().total_outbufs_len, "the client has more than it takes", LONG)
    assert response_to(stage, "/other").endswith(b"/other;")
    assert stage.echo.served == ["/large", "/other"]
    stage.client.shutdown(socket.SHUT_WR)
    received = read(stage.client)
    assert len(received) > TOGETHER * LARGE
    assert received.endswith(b"/last;")
    assert stage.echo.served == ["/large", "/other", *["/large"] * (TOGETHER - 1), "/last"]


def test_requests_that_wait_end_with_their_connection(stage: Stage) -> None:
    stage.send("/large", "/large")
    channel = stage.channel()
    wait_until(lambda: channel.total_outbufs_len and channel.requests, "the second one waits", LONG)
    stage.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stage.client.close()
    wait_until(lambda: not channel.connected and not channel.requests, "both are forgotten", LONG)
    assert stage.echo.served == ["/large"]


def test_a_client_that_has_closed_its_half_gets_all_of_a_large_response(stage: Stage) -> None:
    stage.send("/large")
    stage.client.shutdown(socket.SHUT_WR)
    assert len(read(stage.client)) > LARGE


def test_a_request_has_time_from_the_end_of_the_response_before(stage: Stage) -> None:
    stage.client.sendall(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\n")
    assert stage.echo.reached.wait(LONG)
    channel = stage.channel()
    wait_until(lambda: channel.phase is ChannelPhase.READING, "the next one has begun", LONG)
    late = time.monotonic() + 10 * HEAD_TIMEOUT
    assert not channel.overdue(late)
    stage.echo.release.set()
    assert stage.bodies(1) == ["/held"]
    wait_until(lambda: not channel.is_answering, "the first one is over", LONG)
    assert not channel.overdue(late + HEAD_TIMEOUT - 1.0)
    assert channel.overdue(late + HEAD_TIMEOUT + 1.0)


def test_a_client_that_reads_slowly_differs_from_one_that_reads_nothing_by_what_it_has_taken(stage: Stage) -> None:
    """The kernel's buffer has room again only when a third of it was read, perhaps a megabyte."""
    stage.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    stage.send("/large")
    channel, least = stage.channel(), int(MIN_SEND_RATE * SEND_WINDOW)
    wait_until(lambda: channel.total_outbufs_len, "the client has more than it takes", LONG)
    now = time.monotonic()
    assert not channel.stalled(now)
    before, rest = channel.taken, 2 * least
    while rest:
        rest -= len(stage.client.recv(rest))
    wait_until(lambda: channel.taken - before > least, "the kernel knows", LONG)
    assert not channel.stalled(now + SEND_WINDOW + 1.0)
    assert channel.stalled(now + 2 * SEND_WINDOW + 2.0)


def test_a_step_of_the_clock_ends_no_idle_connection(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[float] = []
    maintain, clock = stage.server._server.maintenance, time.time

    def counted(now: float) -> None:
        maintain(now)
        rounds.append(now)

    stage.send("/first")
    assert stage.bodies(1) == ["/first"]
    monkeypatch.setattr(time, "time", lambda: clock() + 3600.0)
    monkeypatch.setattr(stage.server._server, "maintenance", counted)
    monkeypatch.setattr(stage.server._server.adj, "cleanup_interval", 0)
    wait_until(lambda: len(rounds) > 1, "all have been looked at", LONG)
    stage.send("/second")
    assert stage.bodies(1) == ["/second"]


def test_a_connection_is_silent_a_minute_after_the_last_byte_of_its_response(stage: Stage) -> None:
    stage.send("/large")
    channel = stage.channel()
    wait_until(lambda: channel.total_outbufs_len, "the client has more than it takes", LONG)
    assert not channel.silent(time.monotonic() + 10 * IDLE_TIMEOUT)
    rest = LARGE
    while rest > 0:
        rest -= len(stage.client.recv(65536))
    wait_until(lambda: not channel.is_answering, "all is sent", LONG)
    assert not channel.silent(time.monotonic())
    assert channel.silent(time.monotonic() + IDLE_TIMEOUT + 1.0)


def test_an_error_before_a_large_body_is_read_is_500(stage: Stage) -> None:
    stage.client.sendall(b"POST /fails HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
    assert read(stage.client).startswith(b"HTTP/1.1 500")


def test_an_error_without_a_response_ends_the_connection(stage: Stage) -> None:
    def fail(_rejected: Any) -> dict[str, str]:
        raise RuntimeError("a bug")

    stage.server._server.on_rejected = fail
    stage.client.sendall(b"nonsense\r\n\r\n")
    assert read(stage.client) == b""
    assert response_to(stage, "/other").endswith(b"/other;")


def test_a_client_that_fails_to_be_accepted_leaves_the_listening_socket_open(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    stage.send("/first")
    assert stage.bodies(1) == ["/first"]
    with monkeypatch.context() as patch:
        patch.setattr(stage.server._server, "channel_class", fail)
        with socket.create_connection(("127.0.0.1", stage.port), LONG) as unlucky:
            assert unlucky.recv(1) == b""
    assert response_to(stage, "/other").endswith(b"/other;")


def test_the_loop_outlives_an_error_of_its_own(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    failed, maintain = threading.Event(), stage.server._server.maintenance

    def fail(_now: float) -> None:
        monkeypatch.setattr(stage.server._server, "maintenance", maintain)
        failed.set()
        raise RuntimeError("a bug")

    monkeypatch.setattr(stage.server._server, "maintenance", fail)
    assert failed.wait(LONG)
    stage.send("/first")
    assert stage.bodies(1) == ["/first"]


def test_a_response_for_which_there_is_no_file_ends_its_connection(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_buffer: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TempfileBasedBuffer, "newfile", fail)
    stage.send("/large")
    wait_until(  # before the client reads: one that keeps up with the server needs no file
        lambda: "responses can't be kept until they are sent: [Errno 28]" in caplog.text, "it is given up", LONG
    )
    wait_until(lambda: not stage.server._server.active_channels, "it is closed", LONG)
    assert len(read(stage.client)) < LARGE


def test_only_the_thread_of_the_loop_closes_a_connection(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread finds it reset when it asks for the body, and leaves it to the loop."""
    threads: list[str] = []
    close = Channel.del_channel

    def noted(channel: Channel, *arguments: Any) -> None:
        threads.append(threading.current_thread().name)
        close(channel, *arguments)

    def reset(_channel: Channel, request: Any) -> bool:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        return bool(request.gate.open(1_000_000, "a client"))

    client = stage.client
    monkeypatch.setattr(Channel, "del_channel", noted)
    monkeypatch.setattr(Channel, "_body_is_wanted", reset)
    client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
    wait_until(lambda: threads, "it is closed", LONG)
    assert set(threads) == {"http"}
