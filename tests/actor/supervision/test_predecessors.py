"""Forwarding actors of an older program: each is asked to drain until it acknowledges, also by a later program."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.common import Done, Stop, Unreachable
from actors.bus.messages.forwarding import ConnectionGroups, GroupConnections
from actors.supervision.handover import UPGRADES_MAX, Predecessor, Predecessors
from tests.kit.wait import wait_until

LONG = 60.0


class Bus:
    """The requests that were sent, by the functions that get their replies."""

    def __init__(self) -> None:
        self.asked: list[Callable[[object], None]] = []
        self.stops: list[float] = []
        self.connections = 0

    def ask(self, _to: str, message: object, on_reply: Callable[[object], None], _timeout: float) -> None:
        if isinstance(message, GroupConnections):
            on_reply(ConnectionGroups({"": (self.connections, 0, 0)}, 1))
        elif isinstance(message, Stop):
            self.stops.append(message.drain)
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
    (handed,) = predecessors.hand_over()
    assert handed == replace(predecessor, leaving=True, until=handed.until, upgrades=1)
    assert 0 < handed.until - loop.now <= LONG
    loop.close()


def test_a_stop_shortens_the_drain_of_an_upgrade_and_nothing_lengthens_it(predecessor: Predecessor) -> None:
    predecessors, loop, bus = draining(predecessor)
    bus.asked[0](Done())
    predecessors.drain("forwarding.one", LONG)
    predecessors.drain_all(2 * LONG)
    assert bus.stops == [LONG]
    predecessors.drain_all(1.0)
    assert bus.stops == [LONG, 1.0]
    assert predecessors.until - loop.now <= 1.0
    loop.close()


@pytest.mark.parametrize(
    ("upgrades", "until", "stops", "left"),
    [
        (1, 500.0, [], 500.0),
        (UPGRADES_MAX, 500.0, [], 500.0),
        (UPGRADES_MAX, -5.0, [], 0.0),
        (UPGRADES_MAX + 1, 500.0, [7.0], 7.0),
        (0, None, [7.0], 7.0),
    ],
    ids=["later", "the last", "its time is over", "one too many", "of an older release"],
)
def test_one_that_drains_already_has_what_is_left_of_its_time_through_some_upgrades(
    predecessor: Predecessor, upgrades: int, until: float | None, stops: list[float], left: float
) -> None:
    loop, bus = Loop(), Bus()
    router: Any = bus
    given = 0.0 if until is None else loop.now + until
    leaving = replace(predecessor, leaving=True, upgrades=upgrades, until=given)
    predecessors = Predecessors(loop, router, [leaving], 7.0)
    assert bus.stops == stops
    assert predecessors.until - loop.now == pytest.approx(left, abs=1.0)
    assert predecessors.instances() == {"one": (1,)}
    loop.close()


def test_the_connections_that_are_open_in_one_are_known_as_soon_as_it_drains(predecessor: Predecessor) -> None:
    predecessors, loop, bus = draining(predecessor)
    bus.connections = 2
    bus.asked[0](Done())
    assert predecessors.connections == 2
    loop.close()


def test_the_connections_that_are_open_in_them_are_counted_and_in_the_log_now_and_then(
    predecessor: Predecessor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for period in ("COUNT_FIRST", "COUNT_PERIOD"):
        monkeypatch.setattr(f"actors.supervision.handover.{period}", 0.01)
    caplog.set_level("INFO")
    predecessors, loop, bus = draining(replace(predecessor, lifeline=os.dup(predecessor.lifeline)))
    for bus.connections in (3, 2):
        wait_until(lambda: loop.turn(0.01) or predecessors.connections == bus.connections, "they are counted")
    predecessors.was_cut(2)
    os.kill(predecessor.pid, 9)
    wait_until(lambda: loop.turn(0.01) or not len(predecessors), "its end is seen")
    lines = [each.getMessage() for each in caplog.records if "older process" in each.getMessage()]
    assert lines == [
        "older processes that drain for up to 60 s more: 1, connections that are open in them: 3",
        "the last older process has ended; connections that were cut: 2",
    ]
    assert (predecessors.connections, predecessors.until, predecessors.instances()) == (0, 0.0, {})
    loop.close()
