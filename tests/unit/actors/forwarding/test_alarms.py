"""The moments at which accounts are looked after, by clocks set by hand."""

from __future__ import annotations

import time

import pytest

from actors.bus.loop import Loop
from actors.forwarding.limits.limits import ALARM_MAX, ROLLED_AT_ONCE, SURPLUS_MAX, Alarms


class World:
    """Monotonic and wall clock, which may be set apart."""

    def __init__(self) -> None:
        self.now = 100.0
        self.offset = 1_000_000.0
        self.loop = Loop(lambda: self.now)
        self.alarms = Alarms(self.loop, self.wall)

    def wall(self) -> float:
        return self.now + self.offset

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.loop.turn(0)


class Watched:
    """Rolls at each of these moments."""

    def __init__(self, *moments: float) -> None:
        self._moments = list(moments)
        self.rolled = 0

    @property
    def next_change(self) -> float | None:
        return self._moments[0] if self._moments else None

    def roll(self, _now: float) -> None:
        self.rolled += 1
        self._moments.pop(0)

    def put_off(self, moment: float) -> None:
        self._moments[0] = moment


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(time, "time", world.wall)
    return world


def test_a_clock_that_was_set_forward_is_noticed_when_it_is_checked(world: World) -> None:
    far, further = Watched(world.wall() + 300), Watched(world.wall() + 4000)
    world.alarms.watch(far)
    world.alarms.watch(further)
    world.offset += 0.2
    world.alarms.check_clock()
    world.pass_time(1)
    assert (far.rolled, further.rolled) == (0, 0)
    world.offset += 3600
    world.alarms.check_clock()
    world.pass_time(1)
    assert (far.rolled, further.rolled) == (1, 0)
    world.offset -= 3600
    world.alarms.check_clock()
    world.pass_time(100)
    assert (far.rolled, further.rolled) == (1, 0)


def test_each_is_looked_after_at_its_moments_in_whatever_order_they_came(world: World) -> None:
    start = world.wall()
    late, early, twice = Watched(start + 30), Watched(start + 10), Watched(start + 20, start + 40)
    for each in (late, early, twice):
        world.alarms.watch(each)
    rolled = []
    for _ in range(5):
        world.pass_time(10)
        rolled.append((early.rolled, twice.rolled, late.rolled))
    assert rolled[0] in ((0, 0, 0), (1, 0, 0))
    world.pass_time(1)
    assert rolled[-1] == (1, 2, 1)
    assert len(world.alarms) == 0


def test_one_that_is_put_off_or_forgotten_is_not_woken_for(world: World) -> None:
    start = world.wall()
    moved, gone = Watched(start + 10), Watched(start + 10)
    world.alarms.watch(moved)
    world.alarms.watch(gone)
    moved.put_off(start + 30)
    world.alarms.watch(moved)
    world.alarms.forget(gone)
    world.pass_time(25)
    assert (moved.rolled, gone.rolled) == (0, 0)
    world.pass_time(10)
    assert (moved.rolled, gone.rolled) == (1, 0)


def test_a_wall_clock_that_is_set_forward_is_noticed(world: World) -> None:
    account = Watched(world.wall() + 86_400)
    world.alarms.watch(account)
    world.offset += 90_000
    world.pass_time(int(ALARM_MAX) + 2)
    assert account.rolled == 1


def test_what_is_outdated_does_not_pile_up(world: World) -> None:
    account = Watched(world.wall() + 1000)
    for number in range(10_000):
        account.put_off(world.wall() + 1000 + number)
        world.alarms.watch(account)
    assert len(world.alarms._heap) <= 2 + SURPLUS_MAX


def test_accounts_that_are_due_together_are_looked_after_in_batches(world: World) -> None:
    midnight = world.wall() + 10
    watched = [Watched(midnight, midnight + 86_400) for _ in range(5 * ROLLED_AT_ONCE)]
    for each in watched:
        world.alarms.watch(each)
    world.now += 10.1
    done = 0
    for _ in range(5):
        world.loop.turn(0)
        rolled = sum(each.rolled for each in watched)
        assert rolled - done == ROLLED_AT_ONCE
        done = rolled
        world.now += 0.01
    assert {each.rolled for each in watched} == {1}
