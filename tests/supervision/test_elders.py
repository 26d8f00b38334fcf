"""Forwarding actors of an older program: each is asked to drain until it has heard, also by the program after next."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.common import Done, Unreachable
from actors.supervision.upgrade.handover import Predecessor
from actors.supervision.upgrade.predecessors import Predecessors
from tests.kit.wait import wait_until

LONG = 60.0


class Bus:
    """What was asked of whom, and how it is answered."""

    def __init__(self) -> None:
        self.asked: list[Callable[[object], None]] = []

    def ask(self, _to: str, _message: object, heard: Callable[[object], None], _timeout: float) -> None:
        self.asked.append(heard)


@pytest.fixture
def predecessor() -> Iterator[Predecessor]:
    """A process that serves, and the descriptor by which it lives."""
    process = subprocess.Popen(["sleep", "1000"])
    reading, writing = os.pipe()
    yield Predecessor("forwarding.one", 1, process.pid, writing, leaving=False)
    process.kill()
    process.wait()
    os.close(reading)
    os.close(writing)


def dismissed(predecessor: Predecessor) -> tuple[Predecessors, Loop, Bus]:
    loop, bus = Loop(), Bus()
    router: Any = bus
    predecessors = Predecessors(loop, router, [predecessor], LONG)
    predecessors.drain("forwarding.one", LONG)
    return predecessors, loop, bus


def test_an_elder_that_has_not_heard_that_it_is_to_drain_is_left_as_one_that_serves(predecessor: Predecessor) -> None:
    predecessors, loop, bus = dismissed(predecessor)
    bus.asked[0](Unreachable("forwarding.one", "not back on the bus yet"))
    assert predecessors.hand_over() == [predecessor]
    loop.close()


def test_an_elder_that_has_heard_it_is_left_as_one_that_leaves(predecessor: Predecessor) -> None:
    predecessors, loop, bus = dismissed(predecessor)
    bus.asked[0](Unreachable("forwarding.one", "not back on the bus yet"))
    wait_until(lambda: loop.turn(0.01) or len(bus.asked) > 1, "it is asked again")
    bus.asked[1](Done())
    assert predecessors.hand_over() == [replace(predecessor, leaving=True)]
    loop.close()
