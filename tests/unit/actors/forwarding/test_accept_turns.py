"""When a worker accepts further clients, and when it leaves them to the others."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from actors.bus.loop import Loop
from actors.forwarding.acceptor import ABOVE_BY, AT_ONCE, LEAVE, AcceptTurns
from tests.kit.clocks import Clock

MOST = 64


class Watched:
    """A listening socket in a loop with a clock of the test's own."""

    def __init__(self) -> None:
        self.clock = Clock(100.0)
        self.loop = Loop(self.clock)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.turns = AcceptTurns(self.loop, MOST)
        self.times = 0

    def watch(self) -> None:
        self.times += 1
        self.loop.watch(self.listener.fileno(), self.turns.mask, lambda _mask: None)

    def accepted(self, own: int, connections: int, workers: int, emptied: bool = False) -> bool:
        """Whether it watches on after a turn."""
        before = self.times
        self.turns.accepted(self.listener.fileno(), self.watch, emptied, own, (connections, workers))
        return self.times > before


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    made.turns.share(True)
    made.watch()
    yield made
    made.listener.close()
    made.loop.close()


def test_one_worker_accepts_all_that_wait_and_is_not_exclusive() -> None:
    loop = Loop()
    turns = AcceptTurns(loop, MOST)
    assert (turns.at_once, turns.mask, turns.shared) == (MOST, select.EPOLLIN, False)
    turns.share(True)
    assert (turns.at_once, turns.mask, turns.shared) == (AT_ONCE, select.EPOLLIN | select.EPOLLEXCLUSIVE, True)
    turns.share(False)
    assert (turns.at_once, turns.mask, turns.shared) == (MOST, select.EPOLLIN, False)
    loop.close()


@pytest.mark.parametrize(
    ("own", "connections", "workers", "stays"),
    [
        (4, 4, 2, True),
        (7, 7, 2, True),
        (12, 12, 2, False),
        (50, 100, 2, True),
        (67, 100, 2, False),
        (500, 500, 1, True),
        (500, 0, 0, True),
        (ABOVE_BY, ABOVE_BY, 64, True),
    ],
)
def test_who_has_many_more_than_the_others_leaves_new_clients_to_them(
    watched: Watched, own: int, connections: int, workers: int, stays: bool
) -> None:
    assert watched.accepted(own, connections, workers) == stays


def test_after_a_moment_it_accepts_more_of_those_that_still_wait(watched: Watched) -> None:
    for times, most in ((2, 2 * AT_ONCE), (3, 4 * AT_ONCE)):
        assert not watched.accepted(50, 50, 2)
        watched.clock.now += LEAVE / 2
        watched.loop.turn(0.0)
        assert watched.times == times - 1
        watched.clock.now += LEAVE
        watched.loop.turn(0.0)
        assert (watched.times, watched.turns.at_once) == (times, most)
    for _ in range(5):
        watched.accepted(50, 50, 2)
        watched.clock.now += 2 * LEAVE
        watched.loop.turn(0.0)
    assert watched.turns.at_once == MOST


@pytest.mark.parametrize(("own", "emptied"), [(20, False), (50, True)])
def test_it_accepts_few_again_when_the_others_have_their_part_or_none_waits(
    watched: Watched, own: int, emptied: bool
) -> None:
    watched.turns.at_once = MOST
    watched.accepted(own, 50, 2, emptied)
    assert watched.turns.at_once == AT_ONCE
