"""The resolver's socket: what holds without descriptors, and for actors that read nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgpack
import pytest

from actors.net.accepting import ACCEPT_PAUSE
from actors.net.resolver_protocol import PING
from actors.resolver import actor as module
from actors.resolver.actor import Clients
from tests.actor.resolver.resolving import Resolving
from tests.kit.descriptor_limit import Poor


@pytest.fixture
def clients(resolving: Resolving, tmp_path: Path) -> Iterator[Clients]:
    clients = Clients(resolving.loop, tmp_path / "socket", resolving.service)
    yield clients
    clients.close()


@pytest.fixture
def actor(clients: Clients, tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as actor:
        actor.connect(str(tmp_path / "socket"))
        actor.setblocking(False)
        yield actor


def test_without_descriptors_it_pauses_and_takes_who_has_waited(
    resolving: Resolving, clients: Clients, actor: socket.socket
) -> None:
    listener = clients._listener = Poor(fileno=clients._listener.detach())
    listener.poor = True
    began = time.monotonic()
    for _ in range(200):
        resolving.loop.turn(0.0)
    assert 1 <= listener.asked <= 2 + (time.monotonic() - began) / ACCEPT_PAUSE
    listener.poor = False
    resolving.turn_until(lambda: clients._clients)


def test_an_actor_that_reads_nothing_is_dropped(
    resolving: Resolving, clients: Clients, actor: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNSENT_MAX", 100)
    resolving.turn_until(lambda: clients._clients)

    def is_dropped() -> bool:
        with suppress(BlockingIOError, ConnectionError):
            for _ in range(64):
                actor.send(msgpack.packb([PING]))
        return not clients._clients

    resolving.turn_until(is_dropped)
