"""When counters are published: at once while they change, then ever more seldom, and not at all in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.metrics import Counters
from actors.forwarding.reporting.counter_publisher import FULL_EACH, REPEATED_AFTER, REPEATED_MAX, CounterPublisher
from tests.kit.standin_actors import counters


class Bench:
    """A publisher on a loop whose time is the test's, and at which seconds it published."""

    def __init__(self) -> None:
        self.time = 0.0
        self.loop = Loop(lambda: self.time)
        self.counters: Counters | None = counters("one", 1, 0)
        self.seconds: list[float] = []
        self.full: list[bool] = []
        """Whether all counts were wanted, each time."""
        self.publisher = CounterPublisher(self.loop, self._count, lambda _counters: self.seconds.append(self.time))

    def _count(self, full: bool) -> Counters | None:
        self.full.append(full)
        return self.counters

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
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop.close()


def stir(loop: Loop) -> None:
    """What a descriptor does that is ready."""
    call, loop._on_next_activity = loop._on_next_activity, None
    if call is not None:
        call()


def test_without_activity_nothing_is_published_nor_timed(bench: Bench) -> None:
    bench.pass_seconds(60)
    assert bench.seconds == []
    assert bench.loop._timers == []


def test_from_the_first_activity_on_changes_are_published_each_second(bench: Bench) -> None:
    stir(bench.loop)
    bench.pass_seconds(3, bench.count)
    bench.pass_seconds(3)
    assert bench.seconds == [1.0, 2.0, 3.0]
    bench.count()
    stir(bench.loop)
    bench.pass_seconds(1)
    assert bench.seconds == [1.0, 2.0, 3.0, 7.0]


def test_activity_without_changes_publishes_nothing(bench: Bench) -> None:
    stir(bench.loop)
    bench.pass_seconds(5)
    assert bench.seconds == [1.0]
    stir(bench.loop)
    bench.pass_seconds(1)
    assert bench.seconds == [1.0, 6.0]
    bench.pass_seconds(3, lambda: stir(bench.loop))
    assert bench.seconds == [1.0, 6.0]


def test_without_clients_it_is_repeated_ever_more_seldom(bench: Bench) -> None:
    stir(bench.loop)
    bench.pass_seconds(300)
    assert gaps(bench)[:4] == [REPEATED_AFTER, 2 * REPEATED_AFTER, 4 * REPEATED_AFTER, 8 * REPEATED_AFTER]
    assert set(gaps(bench)[4:]) == {REPEATED_MAX}


def test_with_clients_it_is_repeated_steadily(bench: Bench) -> None:
    bench.count(active=3)
    stir(bench.loop)
    bench.pass_seconds(40)
    assert set(gaps(bench)) == {REPEATED_AFTER}


def test_clients_that_end_by_time_alone_are_published_with_the_next_repetition(bench: Bench) -> None:
    bench.count(active=3)
    stir(bench.loop)
    bench.pass_seconds(3)
    bench.count(active=0)
    bench.pass_seconds(10)
    assert bench.seconds == [1.0, 6.0, 11.0]


def test_before_the_first_configuration_nothing_is_published(bench: Bench) -> None:
    bench.counters = None
    stir(bench.loop)
    bench.pass_seconds(10)
    assert bench.seconds == []


def gaps(bench: Bench) -> list[float]:
    return [later - before for before, later in zip(bench.seconds, bench.seconds[1:], strict=False)]


def test_all_decisions_are_wanted_for_the_first_message_for_each_sixtieth_and_for_repetitions(bench: Bench) -> None:
    stir(bench.loop)
    bench.pass_seconds(2 * FULL_EACH, bench.count)
    of_messages = bench.full[1::2]  # each is counted for a check before it is published
    assert not any(bench.full[::2])
    assert [number for number, full in enumerate(of_messages) if full] == [0, FULL_EACH]
    bench.full.clear()
    bench.pass_seconds(6)
    assert bench.full == [False, False, True]


def test_decisions_alone_are_a_change() -> None:
    before = counters("one", 1, 0, decisions={"office/a": 7})
    assert not counters("one", 1, 0, partial=True).changed_since(before)
    assert counters("one", 1, 0, partial=True, decisions={"office/a": 8}).changed_since(before)
