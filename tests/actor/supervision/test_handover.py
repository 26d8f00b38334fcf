"""What passes from one program of a process to the next: no signal is lost on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from actors.supervision.handover import Handover, Predecessor, last_signals, predecessors_of, unblock_signals


@pytest.fixture
def wake() -> Iterator[int]:
    """The read end of the pipe in which signals arrive, as in the supervisor."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    handler = signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    before = signal.set_wakeup_fd(writing)
    yield reading
    unblock_signals()
    signal.set_wakeup_fd(before)
    signal.signal(signal.SIGHUP, handler)
    os.close(reading)
    os.close(writing)


def test_a_signal_that_came_before_is_reported_and_a_later_one_waits_for_the_next_program(wake: int) -> None:
    signal.raise_signal(signal.SIGHUP)
    assert last_signals(wake) == bytes([signal.SIGHUP])
    signal.raise_signal(signal.SIGHUP)
    assert last_signals(wake) == b""
    assert signal.SIGHUP in signal.sigpending()


def test_without_a_signal_nothing_is_reported(wake: int) -> None:
    assert last_signals(wake) == b""


def test_an_older_program_gets_predecessors_without_what_it_does_not_know() -> None:
    leaving = Predecessor("forwarding.one", 1, 2, 3, leaving=True, until=7.5, upgrades=2)
    content = Handover([], [], [leaving]).content()
    known = {"name": "forwarding.one", "instance": 1, "pid": 2, "lifeline": 3, "leaving": True}
    assert [known] in content.values()
    assert predecessors_of(content) == [leaving]
    del content["drains"]
    assert predecessors_of(content) == [replace(leaving, until=0.0, upgrades=0)]
