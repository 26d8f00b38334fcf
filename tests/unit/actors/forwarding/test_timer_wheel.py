"""The timer wheel: nothing expires early or never, and nothing is done while nothing is due."""

from __future__ import annotations

import weakref

import pytest

from actors.bus.loop import Loop
from actors.forwarding.net.timer_wheel import CHECKED_AT_ONCE, FAR, FAR_SLOTS, NEVER, QUANTUM, UNCHECKED, TimerWheel
from tests.kit.forwarding_rig import until


class Candle:
    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.scheduled_for = NEVER
        self.expired_at: list[float] = []

    def expire(self) -> None:
        self.expired_at.append(self.deadline)
        self.deadline = NEVER


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_each_expires_after_its_deadline_and_within_a_quarter() -> None:
    hand = Hand()
    loop = Loop(hand)
    wheel = TimerWheel(loop)
    candles = [Candle(100.0 + tenth / 10) for tenth in range(1, 30)]
    for candle in candles:
        wheel.schedule(candle)
    while any(not candle.expired_at for candle in candles):
        hand.time += 0.05
        loop.turn(0)
        for candle in candles:
            due = candle.expired_at[0] if candle.expired_at else candle.deadline
            if candle.expired_at:
                assert hand.time >= due
            else:
                assert hand.time <= due + QUANTUM + 0.05
    loop.close()


def test_a_deadline_that_moved_later_is_checked_again_and_one_that_moved_earlier_is_not_missed() -> None:
    hand = Hand()
    loop = Loop(hand)
    wheel = TimerWheel(loop)
    later, earlier = Candle(101.0), Candle(160.0)
    for candle in (later, earlier):
        wheel.schedule(candle)
    later.deadline, earlier.deadline = 105.0, 102.0
    wheel.schedule(earlier)
    seen: dict[str, float] = {}
    for _ in range(200):
        hand.time += 0.05
        loop.turn(0)
        for name, candle in (("later", later), ("earlier", earlier)):
            if candle.expired_at:
                seen.setdefault(name, hand.time)
    assert 105.0 <= seen["later"] <= 105.35
    assert 102.0 <= seen["earlier"] <= 102.35
    assert len(later.expired_at) == len(earlier.expired_at) == 1
    loop.close()


def test_with_a_real_clock() -> None:
    loop = Loop()
    candle = Candle(loop.now + 0.1)
    TimerWheel(loop).schedule(candle)

    def turned() -> bool:
        loop.turn(0.05)
        return bool(candle.expired_at)

    until(turned, "the candle has expired")
    loop.close()


def test_an_entry_that_has_ended_long_before_its_deadline_is_released_soon() -> None:
    hand = Hand()
    loop = Loop(hand)
    wheel = TimerWheel(loop)
    candle = Candle(hand.time + 3600)
    wheel.schedule(candle)
    candle.deadline = NEVER
    reference = weakref.ref(candle)
    del candle
    gone_by = hand.time + FAR + QUANTUM
    while hand.time < gone_by:
        hand.time += 1.0
        loop.turn(0)
    assert reference() is None
    loop.close()


def test_a_far_deadline_is_kept_as_exactly_as_a_near_one() -> None:
    hand = Hand()
    loop = Loop(hand)
    wheel = TimerWheel(loop)
    candle = Candle(hand.time + 100.1)
    wheel.schedule(candle)
    while hand.time < 200.0:
        hand.time += 0.25
        loop.turn(0)
        assert not candle.expired_at
    hand.time = 200.1 + QUANTUM
    loop.turn(0)
    assert candle.expired_at
    loop.close()


class Lasting(Candle):
    """It is checked again and again; `checks` are the times."""

    def __init__(self, hand: Hand, lasts: float) -> None:
        self._hand = hand
        self._lasts = lasts
        self.checks: list[float] = []
        super().__init__(hand.time + lasts)

    @property
    def deadline(self) -> float:
        self.checks.append(self._hand.time)
        return self._hand.time + self._lasts

    @deadline.setter
    def deadline(self, _value: float) -> None:
        return


def test_those_that_are_far_away_are_checked_in_many_turns_however_they_were_opened() -> None:
    hand = Hand()
    loop = Loop(hand)
    wheel = TimerWheel(loop)
    many = [Lasting(hand, 3600.0) for _ in range(100 * FAR_SLOTS)]
    for entry in many:
        wheel.schedule(entry)
        wheel.schedule(entry)
        entry.checks.clear()
    for _ in range(4 * 120):
        hand.time += 0.25
        loop.turn(0)
        checked = [entry for entry in many if entry.checks]
        assert len(checked) <= 2 * len(many) / FAR_SLOTS
        for entry in checked:
            entry.checks.clear()
    assert len(wheel) == len(many)
    loop.close()


@pytest.mark.parametrize(("seconds", "most"), [(0.0, 2 * CHECKED_AT_ONCE), (1.0, 2 * UNCHECKED)])
def test_those_that_expire_together_expire_in_turns(seconds: float, most: int) -> None:
    """At most two batches are in one turn: one is due, the next is soon."""
    hand = Hand()
    loop = Loop(hand)
    wheel = TimerWheel(loop)
    expired: list[Candle] = []

    class Slow(Candle):
        def expire(self) -> None:
            super().expire()
            expired.append(self)
            hand.time += seconds

    many = [Slow(hand.time + 1.0) for _ in range(3 * CHECKED_AT_ONCE)]
    for entry in many:
        wheel.schedule(entry)
    hand.time += 1.0 + QUANTUM
    while len(expired) < len(many):
        before = len(expired)
        loop.turn(0)
        assert before < len(expired) <= before + most
    assert (len(wheel), wheel._slots) == (0, {})
    loop.close()


def test_one_that_ends_or_moves_while_its_slot_is_checked_is_not_checked() -> None:
    hand = Hand()
    loop = Loop(hand)
    wheel = TimerWheel(loop)
    expired: list[Candle] = []

    class First(Candle):
        def expire(self) -> None:
            super().expire()
            expired.append(self)
            for each in many:
                if each is not self and each.deadline != NEVER:
                    each.deadline = hand.time + 10.0 if each is moved else NEVER
                    wheel.cancel(each)
                    if each is moved:
                        wheel.schedule(each)

    many = [First(hand.time + 1.0) for _ in range(2 * CHECKED_AT_ONCE)]
    moved = many[7]
    for entry in many:
        wheel.schedule(entry)
    hand.time += 1.0 + QUANTUM
    for _ in range(3):
        loop.turn(0)
    assert len(expired) == 1
    assert len(wheel) == (moved is not expired[0])
    loop.close()
