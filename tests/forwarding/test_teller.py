"""When counters are told: at once while they change, again and again ever more seldom, and not at all in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.metrics import Counters
from actors.forwarding.reporting.counter_publisher import REPEATED_AFTER, REPEATED_MAX, CounterPublisher
from tests.supervision.standins import counters


class Told:
    """A teller on a loop whose time is the test's, and what it told at which second."""

    def __init__(self) -> None:
        self.time = 0.0
        self.loop = Loop(lambda: self.time)
        self.counters: Counters | None = counters("one", 1, 0)
        self.seconds: list[float] = []
        self.teller = CounterPublisher(
            self.loop, lambda: self.counters, lambda _counters: self.seconds.append(self.time)
        )

    def count(self, active: int = 0) -> None:
        """A client does something."""
        assert self.counters is not None
        self.counters = counters("one", 1, int(self.counters.values["requests"]) + 1, active_connections=active)

    def pass_seconds(self, seconds: int, each: Callable[[], object] = lambda: None) -> None:
        for _ in range(seconds):
            self.time += 1.0
            each()
            self.loop.turn(0)


@pytest.fixture
def told() -> Iterator[Told]:
    made = Told()
    yield made
    made.loop.close()


def stir(loop: Loop) -> None:
    """What a descriptor does that is ready."""
    call, loop._when_stirred = loop._when_stirred, None
    if call is not None:
        call()


def test_nobody_stirs_and_nothing_is_told_nor_timed(told: Told) -> None:
    told.pass_seconds(60)
    assert told.seconds == []
    assert told.loop._timers == []


def test_from_stirring_on_each_second_tells_what_has_changed_until_nothing_has(told: Told) -> None:
    stir(told.loop)
    told.pass_seconds(3, told.count)
    told.pass_seconds(3)
    assert told.seconds == [1.0, 2.0, 3.0]
    told.count()
    stir(told.loop)
    told.pass_seconds(1)
    assert told.seconds == [1.0, 2.0, 3.0, 7.0]


def test_stirring_without_news_tells_nothing(told: Told) -> None:
    stir(told.loop)
    told.pass_seconds(5)
    assert told.seconds == [1.0]
    stir(told.loop)
    told.pass_seconds(1)
    assert told.seconds == [1.0, 6.0]
    told.pass_seconds(3, lambda: stir(told.loop))
    assert told.seconds == [1.0, 6.0]


def test_without_clients_it_is_repeated_ever_more_seldom(told: Told) -> None:
    stir(told.loop)
    told.pass_seconds(300)
    assert gaps(told)[:4] == [REPEATED_AFTER, 2 * REPEATED_AFTER, 4 * REPEATED_AFTER, 8 * REPEATED_AFTER]
    assert set(gaps(told)[4:]) == {REPEATED_MAX}


def test_with_clients_it_is_repeated_steadily(told: Told) -> None:
    told.count(active=3)
    stir(told.loop)
    told.pass_seconds(40)
    assert set(gaps(told)) == {REPEATED_AFTER}


def test_clients_that_end_by_time_alone_are_told_with_the_next_repetition(told: Told) -> None:
    told.count(active=3)
    stir(told.loop)
    told.pass_seconds(3)
    told.count(active=0)
    told.pass_seconds(10)
    assert told.seconds == [1.0, 6.0, 11.0]


def test_before_the_first_configuration_nothing_is_told(told: Told) -> None:
    told.counters = None
    stir(told.loop)
    told.pass_seconds(10)
    assert told.seconds == []


def gaps(told: Told) -> list[float]:
    return [later - before for before, later in zip(told.seconds, told.seconds[1:], strict=False)]
