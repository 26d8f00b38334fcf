"""The HTTP server by itself: how many connections it takes, and how they end."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest

from actors.net.accepting import ACCEPT_PAUSE
from api.server.channel import ChannelPhase
from api.server.http_server import ApiServer
from tests.kit.descriptor_limit import Poor
from tests.kit.ports import free_port
from tests.kit.wait import wait_until

LONG = 120.0
MIB = 1024 * 1024


class Application:
    """Responds with the port that it was reached at, with `body`, or with a `status` that has none."""

    status = ""
    body: Callable[[dict[str, Any]], Iterable[bytes]] | None = None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self.body is not None:
            start_response("200 OK", [])
            return self.body(environ)
        if self.status:
            start_response(self.status, [])
            return []
        start_response("200 OK", [("Content-Length", str(len(environ["SERVER_PORT"])))])
        return [environ["SERVER_PORT"].encode()]


class Serving:
    """A server at a free port, started."""

    def __init__(self) -> None:
        self.application = Application()
        self.listener = listening()
        self.port = port_of(self.listener)
        self.server = ApiServer(self.application, self.listener, 1000)
        self.server.start()


@pytest.fixture
def serving() -> Iterator[Serving]:
    made = Serving()
    yield made
    made.server.close()


def listening() -> socket.socket:
    """At a port that no one else takes when it is closed."""
    listener = socket.create_server(("127.0.0.1", free_port()), backlog=16)
    listener.setblocking(False)
    return listener


def port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def phases(serving: Serving) -> list[ChannelPhase]:
    """Of all connections."""
    return [channel.phase for channel in tuple(serving.server._server.active_channels.values())]


def get(connection: http.client.HTTPConnection) -> str:
    connection.request("GET", "/")
    return connection.getresponse().read().decode()


def client(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)


def test_connections_above_the_limit_wait_until_there_is_room(serving: Serving) -> None:
    first, second = client(serving.port), client(serving.port)
    serving.server.limit(1)
    assert get(first) == str(serving.port)
    wait_until(lambda: serving.server._server.in_connection_overflow, "there is no room")
    second.request("GET", "/")
    serving.server.limit(2)
    assert second.getresponse().read() == str(serving.port).encode()
    first.close()
    second.close()


def test_a_full_server_says_so_once(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    serving.server.limit(1)
    for _ in range(5):
        first, second = client(serving.port), client(serving.port)
        assert get(first) == str(serving.port)
        second.request("GET", "/")
        wait_until(lambda: serving.server._server.in_connection_overflow, "there is no room")
        first.close()
        assert second.getresponse().status == 200
        second.close()
    assert caplog.text.count("connection") == 1
    assert "connections wait to be accepted: there are 1 already" in caplog.text


def drain(serving: Serving) -> None:
    wait_until(serving.server.idle, "no connection is left", LONG)


def test_while_draining_a_new_connection_is_still_served(serving: Serving) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), LONG) as just_come:
        wait_until(lambda: serving.server._server.active_channels, "it is accepted")
        serving.server.stop_accepting()
        just_come.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        response = just_come.makefile("rb").read()
    assert response.startswith(b"HTTP/1.1 200")
    assert b"\r\nConnection: close\r\n" in response
    drain(serving)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_while_draining_the_next_response_of_a_kept_connection_closes_it(serving: Serving, version: str) -> None:
    request = f"GET / HTTP/{version}\r\nHost: here\r\nConnection: keep-alive\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", serving.port), LONG) as kept:
        reader = kept.makefile("rb")
        kept.sendall(request)
        response = http.client.HTTPResponse(kept)
        response.begin()
        assert response.read() == str(serving.port).encode()
        assert response.getheader("Connection") != "close"
        serving.server.stop_accepting()
        kept.sendall(request)
        last = reader.read()  # up to the end
    assert last.startswith(f"HTTP/{version} 200".encode())
    assert b"\r\nConnection: close\r\n" in last
    drain(serving)


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_a_connection_stays_after_a_response_that_has_no_body(serving: Serving, status: str) -> None:
    serving.application.status = status
    with closing(client(serving.port)) as connection:
        connection.connect()
        kept = connection.sock
        for _ in range(3):
            assert get(connection) == ""
            assert connection.sock is kept
        serving.server.stop_accepting()
        assert get(connection) == ""
        assert connection.sock is None
    drain(serving)


def test_draining_waits_for_a_request_that_is_half_sent(serving: Serving) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), LONG) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        wait_until(lambda: ChannelPhase.READING in phases(serving), "it has begun")
        serving.server.stop_accepting()
        assert not serving.server.idle()
        slow.sendall(b"Host: here\r\n\r\n")
        assert slow.makefile("rb").read().startswith(b"HTTP/1.1 200")
    drain(serving)


def test_a_request_that_has_come_but_is_not_read_yet_outlives_the_end_of_draining(serving: Serving) -> None:
    server, has_come = serving.server._server, threading.Event()

    def drain_late() -> None:
        has_come.wait(LONG)
        server.draining_since = time.monotonic() - LONG
        server.drain()

    kept = client(serving.port)
    assert get(kept) == str(serving.port)
    server.trigger.pull_trigger(drain_late)
    kept.request("GET", "/")
    has_come.set()
    assert kept.getresponse().read() == str(serving.port).encode()
    kept.close()


def test_draining_closes_idle_connections(serving: Serving) -> None:
    kept = client(serving.port)
    assert get(kept) == str(serving.port)
    with socket.create_connection(("127.0.0.1", serving.port), LONG) as silent:
        wait_until(lambda: len(serving.server._server.active_channels) == 2, "both are accepted", LONG)
        drain(serving)
        assert silent.recv(1) == b""
        assert kept.sock.recv(1) == b""
    kept.close()


def statuses_of(port: int, sent: bytes) -> list[bytes]:
    """Of all responses on one connection, which the server or a last request ends."""
    with socket.create_connection(("127.0.0.1", port), LONG) as connection:
        connection.sendall(sent)
        with connection.makefile("rb") as responses:
            return re.findall(rb"HTTP/1\.[01] ([0-9]{3}) ", responses.read())


@pytest.mark.parametrize(
    ("sent", "version"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n", b"HTTP/1.1 400"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 5 80\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", b"HTTP/1.1 431"),
        (b"POST / HTTP/1.0\r\nContent-Length: " + b"9" * 40 + b"\r\n\r\n", b"HTTP/1.0 400"),
    ],
    ids=["absurd length", "forged header", "large head", "of 1.0"],
)
def test_a_rejected_request_has_a_response_in_its_own_version(serving: Serving, sent: bytes, version: bytes) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), LONG) as connection:
        connection.sendall(sent)
        with connection.makefile("rb") as responses:
            assert responses.read().startswith(version)


@pytest.mark.parametrize("takes", [False, True], ids=["nothing", "little"])
def test_a_client_that_takes_nothing_or_little_of_a_long_response_holds_no_thread(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, takes: bool
) -> None:
    monkeypatch.setattr("api.server.channel.MIN_SEND_RATE", 1024 * MIB)
    monkeypatch.setattr("api.server.channel.SEND_WINDOW", 0.5)
    ended = threading.Event()

    def endless(_environ: Any) -> Iterator[bytes]:
        try:
            while True:
                yield b"x" * MIB
        finally:
            ended.set()

    monkeypatch.setattr(serving.application, "body", endless, raising=False)
    with socket.create_connection(("127.0.0.1", serving.port), LONG) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        deadline = time.monotonic() + LONG
        while takes and not ended.wait(0.05) and time.monotonic() < deadline:
            connection.recv(16 * 1024)
        assert ended.wait(LONG)


def test_incomplete_requests_are_logged_once(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("api.server.channel.HEAD_TIMEOUT", 0.1)
    slow = [socket.create_connection(("127.0.0.1", serving.port), LONG) for _ in range(3)]
    for each in slow:
        each.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
    for each in slow:
        assert each.recv(1) == b""
        each.close()
    assert caplog.text.count("connections are ended: their requests did not come in time") == 1


def test_a_client_with_more_connections_than_its_share_is_logged_once(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    serving.server._server.per_address = 2
    crowd = [socket.create_connection(("127.0.0.1", serving.port), LONG) for _ in range(5)]
    for each in crowd[2:]:
        assert each.recv(1) == b""
    assert caplog.text.count("connections are closed: one client has more than 2") == 1
    for each in crowd:
        each.close()


def test_connections_that_have_ended_leave_their_client_its_share(serving: Serving) -> None:
    server = serving.server._server
    server.per_address = 2
    for _ in range(4):
        crowd = [socket.create_connection(("127.0.0.1", serving.port), LONG) for _ in range(3)]
        assert crowd[2].recv(1) == b""
        assert server.connections == {"127.0.0.1": 2}
        for each in crowd:
            each.close()
        wait_until(lambda: not server.connections, "none is left", LONG)


def test_an_accept_looks_at_no_other_connection(serving: Serving) -> None:
    server, looked = serving.server._server, []

    class Channels(dict[Any, Any]):
        def values(self) -> Any:
            looked.append(True)
            return super().values()

    server._next_maintenance = time.monotonic() + LONG  # which looks at all of them, once a second
    server.active_channels = Channels(server.active_channels)
    with socket.create_connection(("127.0.0.1", serving.port), LONG):
        wait_until(lambda: server.connections, "it is accepted", LONG)
    assert not looked


LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
NO_CHUNKS = b"\r\n0\r\n\r\n"


AMBIGUOUS = (
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n" + CHUNKED + NO_CHUNKS,
    b"POST / HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"Content-Length: 5\r\n" + NO_CHUNKS,
    b"POST / HTTP/1.1\r\nHost: x\r\n" + CHUNKED + CHUNKED + NO_CHUNKS,
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n" + NO_CHUNKS,
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n" + NO_CHUNKS,
    b"POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n" + CHUNKED + NO_CHUNKS,
    b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x/y\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x, y\r\n\r\n",
    b"GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET \x01/a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /a\0b HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n" + CHUNKED + NO_CHUNKS,
    b"POST / HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n1\n\r\nx\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n0\r\nContent-Length: 5\n\nlater\r\n\r\n",
)
CLEAR = (
    b"POST / HTTP/1.1\r\nHost: x\r\n" + CHUNKED + NO_CHUNKS,
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked \r\n" + NO_CHUNKS,
    b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n1;a=b;c\r\nx\r\n0\r\nX: y\r\n\r\n",
)


def unlike(port: int, requests: Iterable[bytes], expected: list[bytes]) -> dict[bytes, list[bytes]]:
    """Those requests that, with `LAST` behind them, have other statuses than expected."""
    found = {each: statuses_of(port, each + LAST) for each in requests}
    return {each: statuses for each, statuses in found.items() if statuses != expected}


def test_requests_that_a_balancer_could_read_in_another_way_are_400_and_the_last(serving: Serving) -> None:
    assert unlike(serving.port, AMBIGUOUS, [b"400"]) == {}


def test_unambiguous_requests_are_served_and_so_is_the_next_one(serving: Serving) -> None:
    assert unlike(serving.port, CLEAR, [b"200", b"200"]) == {}


def test_close_among_other_options_ends_the_connection(serving: Serving) -> None:
    assert statuses_of(serving.port, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: TE, Close\r\n\r\n" + LAST) == [b"200"]


def test_the_host_of_an_absolute_target_counts(serving: Serving) -> None:
    hosts: list[str] = []
    serving.application.body = lambda environ: hosts.append(environ["HTTP_HOST"]) or []  # type: ignore[func-returns-value]
    statuses_of(serving.port, b"GET http://there/ HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
    assert hosts == ["there"]


def test_the_rejection_of_a_head_request_has_no_body(serving: Serving) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), LONG) as connection:
        connection.sendall(b"HEAD / HTTP/1.1\r\n\r\n")
        assert connection.makefile("rb").read().endswith(b"\r\n\r\n")


def test_its_thread_may_have_ended_before_the_call_that_ends_it_has_woken_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier call woke it; waitress writes to the pipe of its trigger after handing over what is to be done."""
    made = Serving()
    trigger = made.server._server.trigger
    pull = trigger._physical_pull

    def too_late() -> None:
        pull()
        made.server._thread.join(LONG)
        assert not made.server._thread.is_alive()
        pull()

    monkeypatch.setattr(trigger, "_physical_pull", too_late)
    made.server.close()
    assert trigger._fds == [], "the pipe is closed at last"


def test_without_descriptors_the_server_pauses_and_takes_who_has_waited(caplog: pytest.LogCaptureFixture) -> None:
    listener = Poor(fileno=listening().detach())
    listener.poor = True
    server = ApiServer(Application(), listener, 1000)
    server.start()
    try:
        connection = client(port_of(listener))
        connection.connect()
        wait_until(lambda: listener.asked >= 3, "it asks again")
        began, asked = time.monotonic(), listener.asked
        wait_until(lambda: listener.asked >= asked + 2, "it asks again")
        assert time.monotonic() - began >= ACCEPT_PAUSE
        assert sum("can't be accepted" in record.getMessage() for record in caplog.records) == 1
        listener.poor = False
        assert get(connection) == str(port_of(listener))
    finally:
        server.close()
