"""A quota of an account that two workers of a proxy use, by a clock set by hand: both know what both have used."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.messages.accounts import PushTotals
from actors.forwarding.limits.usage import AWAY_AFTER, GRACE_BYTES
from actors.forwarding.limits.workers import ProxyWorkers
from actors.state.counts import LiveState
from actors.state.processes import instance_of
from tests.kit.live_state import Machine
from tests.unit.actors.forwarding.usage_world import ADA, Process, World

PROXY = "px1"
QUOTA = 10_000_000
RICH = replace(ADA, quota=QUOTA)


class TwoWorkers(World):
    """Two workers of one proxy."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "metrics")
        self.machine = Machine(folder / "state", lambda: self.loop.now)
        self.states: list[LiveState] = []
        self.both = [self.worker(), self.worker()]

    def worker(self) -> Process:
        state = self.machine.state(PROXY)
        self.states.append(state)
        made = Process(self, instance_of(state.number), PROXY, state)
        made.configure(RICH)
        made.limits.share(ProxyWorkers(state), 0)
        return made

    def exchange(self) -> None:
        """Both report what they have, and take the totals."""
        self.pass_time(2.0)

    def close(self) -> None:
        self.collector.book.close()
        self.loop.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[TwoWorkers]:
    made = TwoWorkers(tmp_path)
    made.exchange()
    yield made
    made.close()


def used(process: Process) -> int:
    """What it takes to be used by both, in a turn of its own."""
    process.limits.usage.loop.now += 0.001
    process.ada.room()
    return QUOTA + process.ada.overrun


def test_what_one_has_counted_the_other_knows_before_the_collector(workers: TwoWorkers) -> None:
    one, other = workers.both
    one.uses(QUOTA // 2)
    assert used(other) == QUOTA // 2
    other.uses(QUOTA // 2)
    assert one.ada.exhausted
    assert other.ada.exhausted
    workers.exchange()
    assert (used(one), used(other)) == (QUOTA, QUOTA)
    assert workers.kept() == QUOTA


def test_while_the_collector_is_away_both_together_hold_the_quota(workers: TwoWorkers) -> None:
    workers.collector.down = True
    one, other = workers.both
    for each in itertools.cycle((one, other)):
        workers.pass_time(AWAY_AFTER)
        room = min(100_000, each.ada.room())
        if not room:
            break
        each.uses(room)
    assert used(one) == used(other) == QUOTA + GRACE_BYTES
    workers.collector.down = False
    workers.exchange()
    assert used(one) == used(other) == workers.kept() == QUOTA + GRACE_BYTES


def test_a_quota_used_up_elsewhere_ends_what_is_open_here(workers: TwoWorkers) -> None:
    workers.collector.down = True
    one, other = workers.both
    reached: list[bool] = []
    other.ada.on_reached = lambda: reached.append(True)
    one.uses(QUOTA)
    assert not reached
    assert other.ada.room() == GRACE_BYTES
    assert reached == [True]


def test_a_worker_that_has_died_counts_until_the_collector_has_its_file(workers: TwoWorkers) -> None:
    one, _other = workers.both
    one.uses(1_000)
    workers.exchange()
    one.uses(500)
    workers.machine.end(workers.states[0], PROXY)
    assert used(workers.both[1]) == 1_500
    third = workers.worker()
    workers.exchange()
    third.uses(200)
    assert used(third) == used(workers.both[1]) == 1_700


def test_a_reset_begins_at_nothing_for_both(workers: TwoWorkers) -> None:
    one, other = workers.both
    one.uses(3_000)
    other.uses(4_000)
    with workers.collector.book.changes():
        for each in workers.both:
            workers.collector.book.update(each.reporter.collect(("acc_1",)))
        workers.collector.book.reset(("acc_1",))
        pushes = workers.collector.book.pushes(("acc_1",))
    one.uses(10)
    for process, each in zip(((PROXY, 1), (PROXY, 2)), workers.both, strict=True):
        push: PushTotals = pushes[process]
        each.limits.usage.apply_totals(push.accounts)
    assert (used(one), used(other)) == (10, 10)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("use"), st.integers(0, 1), st.integers(1, 50_000)),
        st.tuples(st.just("down"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("turn"), st.just(0), st.just(0)),
        st.tuples(st.just("time"), st.just(0), st.integers(1, 60)),
    ),
    max_size=40,
)


@given(STEPS)
def test_both_know_every_byte_at_any_moment(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    world = TwoWorkers(tmp_path_factory.mktemp("used"))
    world.exchange()
    total = 0
    for what, which, number in steps:
        if what == "use":
            world.both[which].uses(number)
            total += number
        elif what == "down":
            world.collector.down = bool(which)
        elif what == "turn":
            world.loop.turn(0)
        else:
            world.pass_time(number / 10)
        assert [used(each) for each in world.both] == [total, total]
    world.close()
