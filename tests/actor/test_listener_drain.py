"""A listening socket that drains: no new connection is accepted, and no queued one is cut."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from actors.net.listener_drain import accept_syns_again, reject_new_syns

LONG = 10.0
SHORT = 0.1


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_a_draining_socket_serves_its_queue_and_accepts_no_more_where_the_kernel_helps(
    listener: socket.socket,
) -> None:
    with socket.create_connection(listener.getsockname(), LONG) as waiting:
        closed = reject_new_syns(listener)
        with socket.socket() as late:
            late.settimeout(SHORT)
            with pytest.raises(TimeoutError) if closed else contextlib.nullcontext():
                late.connect(listener.getsockname())
        accepted, _peer = listener.accept()
        with accepted:
            waiting.sendall(b"served")
            assert accepted.recv(16) == b"served"


def test_a_socket_that_is_opened_again_accepts_everyone(listener: socket.socket) -> None:
    reject_new_syns(listener)
    accept_syns_again(listener)
    accept_syns_again(listener)
    with socket.create_connection(listener.getsockname(), LONG):
        listener.accept()[0].close()


def test_a_unix_socket_stays_as_it_is() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        reject_new_syns(listener)
        accept_syns_again(listener)
