"""The log of a loop's turns: the longest, each with what it did."""

from __future__ import annotations

import gc
import json
import os
import select
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from actors.forwarding.reporting.turn_log import KEPT, TracedLoop, TurnLog
from tests.kit.clocks import Clock


class Work:
    """What takes time by the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def slow(self, seconds: float) -> None:
        self._clock.now += seconds

    def quick(self) -> None:
        self._clock.now += 0.001


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def loop(clock: Clock) -> Iterator[TracedLoop]:
    made = TracedLoop(clock)
    gc.disable()  # a collection would be in the log
    yield made
    gc.enable()
    made.close()


def test_a_turn_is_described_by_what_took_the_most_of_it(loop: TracedLoop, clock: Clock) -> None:
    work, ready = Work(clock), os.eventfd(1)

    def last(_mask: int) -> None:
        loop.unwatch(ready)
        loop.call_soon(partial(work.slow, 0.03))
        loop.call_soon(loop.stop)

    loop.watch(ready, select.EPOLLIN, last)
    loop.call_later(0.0, partial(work.slow, 0.004))
    loop.call_soon(work.quick)
    loop.run()
    os.close(ready)
    longest, other = loop.log.longest()
    assert longest.milliseconds == pytest.approx(30)
    assert longest.what["Work.slow"] == pytest.approx(30)
    assert other.milliseconds == pytest.approx(5)
    assert other.what == {"Work.slow": pytest.approx(4), "Work.quick": pytest.approx(1)}
    assert (loop.log.turns, loop.log.long) == (2, 1)


def test_collections_of_garbage_are_named(loop: TracedLoop) -> None:
    loop.call_soon(lambda: gc.collect() and None)
    loop.call_soon(loop.stop)
    loop.run()
    assert "collection of generation 2" in loop.log.longest()[0].what


def test_only_the_longest_are_kept_and_written(tmp_path: Path) -> None:
    log = TurnLog()
    for number in range(10 * KEPT):
        log.add((number * 7 % 200) / 1000, (number * 11 % 200) / 2000, 5.0, [("work", 0.5)])
    file = tmp_path / "turns.json"
    log.write(file)
    read = json.loads(file.read_text())
    assert [each[0] for each in read["longest"]] == [199.0 - number for number in range(KEPT)]
    assert read["longest"][0][2:] == [5.0, {"work": 500.0}]
    assert [each[1] for each in read["busiest"]] == [(199 - number) / 2 for number in range(KEPT)]
    assert (read["turns"], read["long"]) == (200, 179)
