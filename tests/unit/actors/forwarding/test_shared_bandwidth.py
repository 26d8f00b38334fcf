"""A bandwidth that several workers divide, each with buckets of its own, on one loop whose clock is set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec, LimitsSpec
from actors.forwarding.limits.accounts import Account
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.limits.usage import UsageCounters
from actors.state.live_state import LiveState
from tests.kit.clocks import Clock
from tests.kit.forwarding_rig import spec
from tests.kit.live_state import Machine
from tests.unit.actors.forwarding.bandwidth_flows import RATE, STEP, Flow, Worker


class World:
    def __init__(self, folder: Path) -> None:
        self.clock = Clock(1000.0)
        self.loop = Loop(self.clock)
        self.machine = Machine(folder, self.clock)

    def workers(self, count: int, rate: int = RATE) -> list[Worker]:
        return [Worker(self, self.machine.state(f"px{number % 3}"), rate) for number in range(count)]

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.clock.now += STEP
            self.loop.turn(0)

    def moves(self, flows: list[Flow], seconds: float) -> list[float]:
        """What each moves in this time, as parts of what all may move together."""
        before = [each.moved for each in flows]
        self.pass_time(seconds)
        return [(each.moved - was) / (seconds * RATE) for each, was in zip(flows, before, strict=True)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "workers")
    yield made
    made.loop.close()


@pytest.mark.parametrize("count", [2, 8, 64])
def test_one_worker_that_wants_all_gets_nearly_all(world: World, count: int) -> None:
    flow = Flow(world.workers(count)[0])
    world.pass_time(0.3)
    assert 0.9 <= world.moves([flow], 1.0)[0] <= 1.05


@pytest.mark.parametrize("count", [2, 4])
def test_workers_that_want_all_get_the_same_and_together_no_more_than_the_whole(world: World, count: int) -> None:
    flows = [Flow(each) for each in world.workers(count)]
    world.pass_time(0.3)
    for _ in range(3):
        parts = world.moves(flows, 1.0)
        assert max(parts) <= 1.1 * min(parts)
        assert 0.9 <= sum(parts) <= 1.1


def test_one_that_joins_gets_its_part_within_three_periods_and_takes_no_more_than_is_there(world: World) -> None:
    first, second = world.workers(2)
    flows = [Flow(first)]
    world.pass_time(2.0)
    flows.append(Flow(second))
    assert sum(world.moves(flows, 0.2)) <= 1.25
    world.pass_time(0.1)
    parts = world.moves(flows, 1.0)
    assert max(parts) <= 1.1 * min(parts)
    assert sum(parts) <= 1.1


def test_one_that_leaves_frees_its_part_at_once(world: World) -> None:
    flows = [Flow(each) for each in world.workers(2)]
    world.pass_time(1.0)
    flows[1].on = False
    world.pass_time(0.3)
    assert world.moves(flows[:1], 1.0)[0] >= 0.9


def test_one_that_moves_little_gets_that_and_the_other_the_rest(world: World) -> None:
    first, second = world.workers(2)
    flows = [Flow(first), Flow(second, at_most=RATE // 5)]
    world.pass_time(1.0)
    greedy, modest = world.moves(flows, 2.0)
    assert modest == pytest.approx(0.2, abs=0.02)
    assert 0.65 <= greedy <= 0.85


def test_flows_count_and_not_workers(world: World) -> None:
    first, second = world.workers(2)
    flows = [Flow(first) for _ in range(3)] + [Flow(second)]
    world.pass_time(1.0)
    parts = world.moves(flows, 2.0)
    assert sum(parts[:3]) == pytest.approx(3 * parts[3], rel=0.15)


def test_the_first_bytes_of_an_idle_worker_wait_for_no_edge(world: World) -> None:
    first, second = world.workers(2)
    Flow(first)
    world.pass_time(2.0)
    assert second.bucket.available() >= 1460


def test_an_idle_worker_has_no_timer(world: World) -> None:
    flows = [Flow(each) for each in world.workers(2)]
    world.pass_time(0.5)
    for each in flows:
        each.on = False
    world.pass_time(1.5)
    assert not [timer for _when, _number, timer in world.loop._timers if timer.call is not None]


def test_another_rate_holds_at_once_for_all(world: World) -> None:
    both = world.workers(2)
    flows = [Flow(each) for each in both]
    world.pass_time(1.0)
    for each in both:
        each.bucket.set_rate(RATE // 4)
    world.pass_time(0.3)
    assert sum(world.moves(flows, 1.0)) == pytest.approx(0.25, rel=0.1)
    for each in both:
        each.bucket.set_rate(0)
    assert both[0].bucket.available() > RATE


def test_a_dead_worker_has_no_share(world: World) -> None:
    first, second = world.workers(2)
    flows = [Flow(first), Flow(second)]
    world.pass_time(1.0)
    flows[1].on = False
    world.machine.end(second.state, "px1")
    world.pass_time(0.2)
    assert world.moves(flows[:1], 1.0)[0] >= 0.95


# --- what divides its bandwidth ---


def shares_of(limits: LimitsOfProxy) -> list[bool]:
    return [each.sharing is not None for each in (limits._inward, limits._outward)]


def test_the_bandwidth_of_the_proxy_is_divided_once_it_is_limited(world: World) -> None:
    limits = LimitsOfProxy(world.loop, world.machine.state())
    assert shares_of(limits) == [False, False]
    limits.configure(spec(1, limits=LimitsSpec(bandwidth_in=RATE)))
    assert shares_of(limits) == [True, True]
    assert limits._inward.rate == RATE
    assert limits._outward.rate == 0


def test_so_is_that_of_an_account_which_has_all_of_it_while_no_other_process_uses_it(world: World) -> None:
    usage = UsageCounters(world.loop)
    limited = AccountSpec("acc_1", "ada", None, limits=LimitsSpec(bandwidth_out=RATE))
    accounts = []
    for before in (limited, AccountSpec("acc_1", "ada", None)):
        key_of = partial(world.machine.state().account, "acc_1")
        account = Account(world.loop, before, 0.0, usage.acquire("acc_1"), key_of)
        account.update(limited, 0.0)
        accounts.append(account)
        assert account.bucket(False).rate == RATE
    for account in accounts:
        account.bucket(False).consume(1)
    assert accounts[1].bucket(False).rate == RATE // 2


def test_over_fifty_processes_that_begin_at_once_it_holds_within_fifteen_percent_over_five_seconds(
    world: World,
) -> None:
    flows = [Flow(each) for each in world.workers(50)]
    assert 0.85 <= sum(world.moves(flows, 5.0)) <= 1.15


def test_one_that_is_alone_has_one_timer_a_second_and_gives_its_place_back_when_it_rests(world: World) -> None:
    worker = world.workers(1)[0]
    flow = Flow(worker)
    world.pass_time(5.0)
    bandwidth = worker.bucket.sharing
    assert bandwidth is not None
    assert not bandwidth._bandwidth.resting
    flow.on = False
    world.pass_time(2.5)
    assert bandwidth._bandwidth.resting
    assert world.machine.state().account("acc_1", "bandwidth").connections_of_each() == []


def test_one_that_shares_with_none_divides_nothing_at_each_piece(world: World) -> None:
    bucket = Worker(world, LiveState(world.clock), RATE).bucket
    bandwidth = bucket.sharing._bandwidth  # type: ignore[union-attr, attr-defined]
    bucket.consume(1)
    timer = bandwidth._timer
    bucket.consume(1)
    assert bandwidth._timer is timer
