"""A turn of the loop has a budget: what is left over is first in the next turn, and nothing of it is lost."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from actors.bus.loop import CANCELLED_MAX, EVENTS_BEHIND, EVENTS_MAX, TURN_MAX, UNCHECKED, Loop
from tests.kit.clocks import Clock
from tests.kit.tables import table

MANY = 1000
SLOW = TURN_MAX
"""Seconds of one call: after that the turn has taken too long."""


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def loop(clock: Clock) -> Iterator[Loop]:
    made = Loop(clock)
    yield made
    made.close()


class Calls:
    """Notes the turns in which it was called; each call takes `seconds`."""

    def __init__(self, loop: Loop, clock: Clock, seconds: float = 0.0) -> None:
        self._loop = loop
        self._clock = clock
        self._seconds = seconds
        self.order: list[int] = []
        self.in_turns: list[int] = []

    def call(self, number: int) -> None:
        self.order.append(number)
        self._clock.now += self._seconds

    def turns(self) -> None:
        """Turn until all of `MANY` were made."""
        while len(self.order) < MANY:
            before = len(self.order)
            self._loop.turn(0)
            self.in_turns.append(len(self.order) - before)


@table(("seconds", "most"), [(0.0, MANY), (SLOW, UNCHECKED), (SLOW / 100, 101 + UNCHECKED)])
def test_calls_that_are_soon_end_a_turn_that_takes_too_long(
    loop: Loop, clock: Clock, seconds: float, most: int
) -> None:
    calls = Calls(loop, clock, seconds)
    for number in range(MANY):
        loop.call_soon(partial(calls.call, number))
    calls.turns()
    assert calls.order == list(range(MANY))
    assert min(calls.in_turns) > 0
    assert max(calls.in_turns) <= most


@table(("seconds", "most"), [(0.0, MANY), (SLOW, UNCHECKED), (SLOW / 100, 101 + UNCHECKED)])
def test_so_do_calls_that_are_due(loop: Loop, clock: Clock, seconds: float, most: int) -> None:
    calls = Calls(loop, clock, seconds)
    for number in range(MANY):
        loop.call_later(1.0, partial(calls.call, number))
    clock.now += 1.0
    calls.turns()
    assert calls.order == list(range(MANY))
    assert min(calls.in_turns) > 0
    assert max(calls.in_turns) <= most


def test_calls_that_are_soon_come_on_while_more_is_due_than_a_turn_allows(loop: Loop, clock: Clock) -> None:
    due, soon = Calls(loop, clock, SLOW), Calls(loop, clock, SLOW)
    for number in range(MANY):
        loop.call_later(0.0, partial(due.call, number))
        loop.call_soon(partial(soon.call, number))
    for turn in range(1, 11):
        loop.turn(0)
        assert min(len(due.order), len(soon.order)) >= turn * (UNCHECKED - 1)


class Ready:
    """Descriptors that are ready; the handler of each takes it, which takes `seconds`."""

    def __init__(self, loop: Loop, calls: Calls, count: int, edge: int) -> None:
        self._loop = loop
        self.fds = []
        for number in range(count):
            fd = os.eventfd(1, os.EFD_NONBLOCK)
            self.fds.append(fd)
            loop.watch(fd, select.EPOLLIN | edge, partial(self._take, calls, number))

    def _take(self, calls: Calls, number: int, _mask: int) -> None:
        os.eventfd_read(self.fds[number])
        calls.call(number)

    def close(self) -> None:
        for fd in self.fds:
            self._loop.unwatch(fd)
            os.close(fd)


@table("edge", [0, select.EPOLLET])
@table(("seconds", "most"), [(0.0, EVENTS_MAX), (SLOW, UNCHECKED), (SLOW / 100, 101 + UNCHECKED)])
def test_so_do_events_and_none_is_lost(loop: Loop, clock: Clock, edge: int, seconds: float, most: int) -> None:
    calls = Calls(loop, clock, seconds)
    with ExitStack() as stack:
        stack.callback(Ready(loop, calls, MANY, edge).close)
        calls.turns()
    assert sorted(calls.order) == list(range(MANY))
    assert min(calls.in_turns) > 0
    assert max(calls.in_turns) <= most


def test_events_do_not_outnumber_calls_that_are_left_over(loop: Loop, clock: Clock) -> None:
    calls, slow = Calls(loop, clock), Calls(loop, clock, SLOW)
    for number in range(2 * UNCHECKED):
        loop.call_soon(partial(slow.call, number))
    with ExitStack() as stack:
        stack.callback(Ready(loop, calls, MANY, 0).close)
        loop.turn(0)
        assert (len(slow.order), len(calls.order)) == (UNCHECKED - 1, EVENTS_BEHIND)


def test_a_descriptor_that_ends_gets_no_event_that_was_left_over_for_its_number(loop: Loop, clock: Clock) -> None:
    calls, of_others = Calls(loop, clock, SLOW), []
    ready = Ready(loop, calls, 2 * UNCHECKED, 0)
    loop.turn(0)
    left = max(set(range(2 * UNCHECKED)) - set(calls.order))
    fd = ready.fds[left]
    loop.unwatch(fd)
    os.close(fd)
    ready.fds[left] = os.eventfd(0, os.EFD_NONBLOCK)
    assert ready.fds[left] == fd, "the lowest free number is used again"
    loop.watch(fd, select.EPOLLIN, of_others.append)
    for _ in range(3):
        loop.turn(0)
    assert of_others == []
    assert len(calls.order) == 2 * UNCHECKED - 1
    os.eventfd_write(fd, 1)
    loop.turn(0)
    assert of_others == [select.EPOLLIN]
    ready.close()


def test_the_longest_turn_counts_what_was_left_over_where_it_was_done(loop: Loop, clock: Clock) -> None:
    calls = Calls(loop, clock, SLOW)
    for number in range(MANY):
        loop.call_soon(partial(calls.call, number))
    calls.turns()
    loop.turn(0)
    assert loop.longest_turn == pytest.approx((UNCHECKED - 1) * SLOW)


# --- cancelled timers ---


def test_cancelled_timers_are_never_more_than_others_and_a_few(loop: Loop) -> None:
    lasting = [loop.call_later(60.0, lambda: None) for _ in range(10)]
    for _ in range(50 * MANY):
        loop.call_later(30.0, lambda: None).cancel()
        assert len(loop._timers) <= 2 * len(lasting) + CANCELLED_MAX + 1
    assert sum(timer.call is not None for _, _, timer in loop._timers) == 10


def test_timers_run_in_order_whatever_was_cancelled_and_whenever(loop: Loop, clock: Clock) -> None:
    ran: list[int] = []
    timers = [loop.call_later(number % 97, partial(ran.append, number)) for number in range(MANY)]
    for number in range(0, MANY, 3):
        timers[number].cancel()
        timers[number].cancel()
    while loop._timers:
        clock.now += 1.0
        loop.turn(0)
        for each in ran:
            timers[each].cancel()  # harmless after it ran
    left = [number for number in range(MANY) if number % 3]
    assert ran == sorted(left, key=lambda number: (number % 97, number))
    assert loop._cancelled == 0
