"""The load of a loop: what it did between its waits, and the longest turn of the last minute."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from actors.bus.loop import Loop
from actors.forwarding.reporting.counter_publisher import WINDOW, Load, LoopLoad


class Busy:
    """A loop on a clock of its own: only `work` and `wait` take time."""

    def __init__(self) -> None:
        self.clock = 1000.0
        self.loop = Loop(lambda: self.clock)
        self._waited = 0.0
        self.load = LoopLoad(self.loop, lambda: self.clock - self._waited)
        self._ready = os.eventfd(0, os.EFD_NONBLOCK)
        self._takes = 0.0
        self.loop.watch(self._ready, select.EPOLLIN, self._on_ready)

    def work(self, seconds: float) -> None:
        """One turn that takes so long, and the beginning of the next, after which it counts."""
        self._takes = seconds
        os.eventfd_write(self._ready, 1)
        self.loop.turn(0)
        self.loop.turn(0)

    def wait(self, seconds: float) -> None:
        """A turn that only waits, for a timer."""
        self.loop.on_wake_deadline = lambda _deadline: self._pass(seconds)
        self.loop.turn(0.001)
        self.loop.on_wake_deadline = lambda _deadline: None

    def _pass(self, seconds: float) -> None:
        self.loop.on_wake_deadline = lambda _deadline: None
        self.clock += seconds
        self._waited += seconds

    def _on_ready(self, _mask: int) -> None:
        os.eventfd_read(self._ready)
        self.clock += self._takes

    def close(self) -> None:
        self.loop.close()
        os.close(self._ready)


@pytest.fixture
def busy() -> Iterator[Busy]:
    busy = Busy()
    yield busy
    busy.close()


def test_a_loop_that_has_done_nothing_has_no_load(busy: Busy) -> None:
    assert busy.load.read() == Load(0.0, 0.0)


def test_the_time_between_waits_is_busy_and_the_longest_turn_is_found(busy: Busy) -> None:
    busy.work(0.03)
    busy.work(0.01)
    busy.wait(0.06)
    assert busy.load.read() == Load(pytest.approx(0.4), pytest.approx(30.0))


def test_waiting_is_no_turn(busy: Busy) -> None:
    busy.wait(10.0)
    assert busy.load.read() == Load(0.0, 0.0)


def test_a_long_turn_is_reported_for_a_window_after_its_own_and_then_forgotten(busy: Busy) -> None:
    busy.work(0.05)
    reported = []
    for _ in range(4):
        reported.append(busy.load.read().turn_max_ms)
        busy.wait(WINDOW)
    assert reported[:2] == [pytest.approx(50.0)] * 2
    assert reported[-1] == 0.0
