"""When a process reports that it has no clients, and how it goes to sleep; by a clock that is set by hand."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator

import pytest

from actors.bus.loop import Loop
from actors.forwarding.acceptor import Acceptor
from actors.forwarding.context import ForwardingContext
from actors.forwarding.sleeper import BUSY_AGAIN, DECIDED_WITHIN, REPORTED_AGAIN, Sleeper
from tests.kit.forwarding_rig import LOOPBACK_ALLOWED, spec
from tests.kit.wait import wait_until

AFTER = 100.0
LONGEST = 120


class World:
    """A process in the loop of the test."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.loop = Loop(lambda: self.time)
        self.context = ForwardingContext(self.loop, lambda _row: None, 10, 60.0, handshake_timeout=1e6)
        self.context.configure(spec(1), LOOPBACK_ALLOWED)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.acceptor = Acceptor(self.context, None)
        self.acceptor.listen([self.listener])
        self.reports = 0
        self.sleeper = Sleeper(self.context, self.acceptor, self._reported)
        self.sleeper.configure(AFTER)
        self.clients: list[socket.socket] = []

    def _reported(self) -> None:
        self.reports += 1

    def pass_time(self, seconds: float) -> None:
        """Turn the loop before and after so many seconds."""
        self.loop.turn(0)
        self.time += seconds
        self.loop.turn(0)
        self.loop.turn(0)

    def connect(self) -> socket.socket:
        """A client, which waits in the queue."""
        client = socket.create_connection(self.listener.getsockname())
        self.clients.append(client)
        queue = select.poll()
        queue.register(self.listener, select.POLLIN)
        assert queue.poll(LONGEST * 1000), "it is in the queue a little later than it is connected"
        return client

    def turn_until(self, condition: Callable[[], bool], what: str) -> None:
        """Turn the loop, and let no time pass."""

        def turned() -> bool:
            self.loop.turn(0)
            return condition()

        wait_until(turned, what)

    def close(self) -> None:
        """Close everything."""
        for each in (*self.clients, self.listener):
            each.close()
        for connection in tuple(self.context.connections):
            connection.end("connection_terminated")
        self.loop.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_it_reports_after_its_time_without_a_client_and_again(world: World) -> None:
    world.pass_time(AFTER - 1)
    assert world.reports == 0
    world.pass_time(1)
    assert world.reports == 1
    world.pass_time(REPORTED_AGAIN)
    assert world.reports == 2


def test_a_client_begins_the_time_anew_when_it_leaves(world: World) -> None:
    client = world.connect()
    world.pass_time(AFTER - 1)
    assert len(world.context.connections) == 1
    for _ in range(3):
        world.pass_time(AFTER)
    assert world.reports == 0
    client.close()
    world.turn_until(lambda: not world.context.connections, "the end of the connection")
    world.pass_time(AFTER - 1)
    assert world.reports == 0
    world.pass_time(1)
    assert world.reports == 1


def test_a_test_that_is_expected_holds_it_awake(world: World) -> None:
    world.context.testers.expect("user", "token", "", 2 * AFTER)
    world.pass_time(AFTER)
    world.pass_time(BUSY_AGAIN)
    assert world.reports == 0
    assert not world.sleeper.sleep()
    world.pass_time(AFTER)
    world.pass_time(BUSY_AGAIN)
    assert world.reports == 1


def test_the_time_is_that_of_the_last_configuration_and_0_is_never(world: World) -> None:
    world.sleeper.configure(AFTER / 2)
    world.sleeper.configure(AFTER / 2)
    world.pass_time(AFTER / 2)
    assert world.reports == 1
    world.sleeper.configure(0)
    assert world.context.on_empty is None
    world.pass_time(1_000_000)
    assert world.reports == 1


def test_a_client_in_the_queue_is_accepted_in_place_of_sleep(world: World) -> None:
    world.connect()
    assert not world.sleeper.sleep()
    assert len(world.context.connections) == 1
    world.connect()
    world.pass_time(0)
    assert len(world.context.connections) == 2


def test_asleep_it_leaves_clients_in_the_queue_until_it_goes_on(world: World) -> None:
    assert world.sleeper.sleep()
    world.connect()
    world.pass_time(DECIDED_WITHIN - 1)
    assert (world.reports, len(world.context.connections)) == (0, 0)
    world.sleeper.resume()
    world.pass_time(0)
    assert len(world.context.connections) == 1


def test_it_goes_on_by_itself_when_nothing_is_decided(world: World) -> None:
    assert world.sleeper.sleep()
    world.connect()
    world.pass_time(DECIDED_WITHIN)
    assert len(world.context.connections) == 1


def test_a_pause_of_accepting_outlives_a_lack_of_descriptors(world: World) -> None:
    world.acceptor._cannot_accept(world.listener, world.listener.getsockname()[1], OSError(24, "Too many open files"))
    assert world.sleeper.sleep()
    world.connect()
    world.pass_time(DECIDED_WITHIN - 1)
    assert not world.context.connections
    world.sleeper.resume()
    world.pass_time(0)
    assert len(world.context.connections) == 1
