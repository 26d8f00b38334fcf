"""Forwarding actors of an older program: each is asked to drain until it acknowledges, also by a later program."""

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
    """The requests that were sent, by the functions that get their replies."""

    def __init__(self) -> None:
        self.asked: list[Callable[[object], None]] = []

    def ask(self, _to: str, _message: object, on_reply: Callable[[object], None], _timeout: float) -> None:
        self.asked.append(on_reply)


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


def draining(predecessor: Predecessor) -> tuple[Predecessors, Loop, Bus]:
    loop, bus = Loop(), Bus()
    router: Any = bus
    predecessors = Predecessors(loop, router, [predecessor], LONG)
    predecessors.drain("forwarding.one", LONG)
    return predecessors, loop, bus


def test_a_predecessor_that_has_not_acknowledged_its_stop_is_handed_over_as_one_that_serves(
    predecessor: Predecessor,
) -> None:
    predecessors, loop, bus = draining(predecessor)
    bus.asked[0](Unreachable("forwarding.one", "not back on the bus yet"))
    assert predecessors.hand_over() == [predecessor]
    loop.close()


def test_a_predecessor_that_has_acknowledged_its_stop_is_handed_over_as_one_that_drains(
    predecessor: Predecessor,
) -> None:
    predecessors, loop, bus = draining(predecessor)
    bus.asked[0](Unreachable("forwarding.one", "not back on the bus yet"))
    wait_until(lambda: loop.turn(0.01) or len(bus.asked) > 1, "it is asked again")
    bus.asked[1](Done())
    assert predecessors.hand_over() == [replace(predecessor, leaving=True)]
    loop.close()
