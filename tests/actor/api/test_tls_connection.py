"""One connection of the TLS terminator, in every state of its two directions."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.bus.loop import Loop
from api.server.tls_terminator import Half, TlsConnection


class Stream:
    """The client's end: it sends what is in `sends`, and takes what it is sent unless it is `full`."""

    unsent = False

    def __init__(self) -> None:
        self.sends: list[bytes] = []
        self.full = False
        self.ended = False

    def flush(self) -> None:
        """Nothing is left of a handshake."""

    def recv(self, _size: int) -> bytes:
        if not self.sends:
            raise BlockingIOError
        return self.sends.pop(0)

    def send(self, data: bytes) -> int:
        if self.full:
            raise BlockingIOError
        return len(data)

    def shutdown(self, _how: int) -> None:
        self.ended = True


class Relay:
    """A connection that is connected to an API, put into one state."""

    def __init__(self, folder: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "api"))
        self.listener.listen()
        self.peer, client = socket.socketpair()
        self.stream = Stream()
        self.closed: list[TlsConnection] = []
        stream: Any = self.stream
        self.loop = Loop()
        self.connection = TlsConnection(self.loop, client, stream, str(folder / "api"), self.closed.append)

    def connect(self) -> socket.socket:
        """The API's end of the connection."""
        api, self.connection._api = socket.socketpair()
        self.connection._api.setblocking(False)
        self.connection.deadline = None
        return api

    def close(self) -> None:
        self.connection.close()
        self.listener.close()
        self.peer.close()


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    made = Relay(tmp_path)
    yield made
    made.close()


NEXT = {
    (Half.OPEN, Half.OPEN): (Half.OPEN, Half.OPEN),
    (Half.OPEN, Half.ENDED): (Half.OPEN, Half.FORWARDED),
    (Half.OPEN, Half.FORWARDED): (Half.OPEN, Half.FORWARDED),
    (Half.ENDED, Half.OPEN): (Half.FORWARDED, Half.OPEN),
    (Half.ENDED, Half.ENDED): "closed",
    (Half.ENDED, Half.FORWARDED): "closed",
    (Half.FORWARDED, Half.OPEN): (Half.FORWARDED, Half.OPEN),
    (Half.FORWARDED, Half.ENDED): "closed",
    (Half.FORWARDED, Half.FORWARDED): "closed",
}
"""State of request and response, and what follows when both ends take all that waits."""


@pytest.mark.parametrize(("request_", "response"), list(itertools.product(Half, Half)))
@pytest.mark.parametrize("waiting", [b"", b"bytes"])
def test_what_follows_each_state(relay: Relay, request_: Half, response: Half, waiting: bytes) -> None:
    api, connection = relay.connect(), relay.connection
    connection._request.half, connection._response.half = request_, response
    for direction in (connection._request, connection._response):
        direction.buffer += waiting if direction.half is not Half.FORWARDED else b""
    connection._on_ready(0)
    after = (connection._request.half, connection._response.half)
    assert ("closed" if connection.closed else after) == NEXT[request_, response]
    assert relay.closed == ([connection] if connection.closed else [])
    assert relay.stream.ended == (response is Half.ENDED), "the client gets one close_notify, behind all bytes"
    assert (connection.deadline is not None) == (response is Half.ENDED)
    api.close()


@pytest.mark.parametrize("request_", Half)
def test_no_end_overtakes_bytes_that_the_client_has_not_taken(relay: Relay, request_: Half) -> None:
    api, connection = relay.connect(), relay.connection
    relay.stream.full = True
    connection._request.half = request_
    api.sendall(b"response")
    api.shutdown(socket.SHUT_WR)
    connection._on_ready(0)
    assert connection._response.half is Half.ENDED
    assert not relay.stream.ended
    assert not connection.closed
    assert connection.deadline is not None
    api.close()


def test_what_a_client_sends_behind_the_end_of_the_response_is_discarded(relay: Relay) -> None:
    api, connection = relay.connect(), relay.connection
    relay.stream.sends = [b"late", b"later", b""]
    connection._response.half = Half.FORWARDED
    connection._on_ready(0)
    assert connection.closed, "its end is found behind what is discarded"
    assert not connection._request.buffer
    api.close()


def test_a_client_that_ends_without_a_byte_costs_the_api_no_connection(relay: Relay) -> None:
    relay.stream.sends = [b""]
    relay.listener.setblocking(False)
    relay.connection._on_ready(0)
    assert relay.connection.closed
    with pytest.raises(BlockingIOError):
        relay.listener.accept()


def test_a_source_is_not_read_while_its_sink_takes_nothing(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.server.tls_terminator.BUFFER_MAX", 8)
    monkeypatch.setattr("api.server.tls_terminator.READ_SIZE", 8)
    api, connection = relay.connect(), relay.connection
    relay.stream.full = True
    api.sendall(b"x" * 20)
    connection._on_ready(0)
    assert len(connection._response.buffer) == 8
    assert not connection._response.wants_more
    api.close()


def test_a_client_that_goes_on_sending_behind_the_end_takes_the_loop_for_a_moment_only(relay: Relay) -> None:
    class Endless(list[bytes]):
        def pop(self, _at: object = -1) -> bytes:
            self.append(b"")
            assert len(self) < 1000, "the loop has other clients"
            return b"x" * 16 * 1024

    api, connection = relay.connect(), relay.connection
    relay.stream.sends = Endless([b""])
    connection._response.half = Half.FORWARDED
    connection._on_ready(0)
    assert not connection.closed
    assert not connection._request.buffer
    api.close()
