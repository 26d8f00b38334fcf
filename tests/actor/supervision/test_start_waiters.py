"""Replies that wait until a proxy has started."""

from __future__ import annotations

from actors.bus.loop import Loop
from actors.supervision.callbacks import StartWaiters
from tests.kit.clocks import Clock


def test_the_reply_comes_when_the_start_is_over_and_at_once_where_there_is_none() -> None:
    starting = {"one"}
    replied: list[str] = []
    waits = StartWaiters(Loop(), starting.__contains__)
    waits.wait("another", 60.0, lambda: replied.append("another"))
    waits.wait("one", 60.0, lambda: replied.append("one"))
    waits.update("one")
    assert replied == ["another"]
    starting.clear()
    waits.update("one")
    waits.update("one")
    assert replied == ["another", "one"]


def test_the_reply_comes_in_any_case_when_its_time_is_over() -> None:
    clock = Clock(1_000.0)
    loop = Loop(clock)
    replied: list[str] = []
    waits = StartWaiters(loop, lambda _proxy_id: True)
    waits.wait("one", 3.0, lambda: replied.append("one"))
    clock.now += 2.9
    loop.turn(0.0)
    assert replied == []
    clock.now += 0.2
    loop.turn(0.0)
    assert replied == ["one"]
    waits.update("one")
    assert replied == ["one"]
