"""What an actor reports to the collector of its accounts, and how it applies the replies; by a clock set by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.accounts import ReportUsage, Usage
from actors.bus.messages.common import METRICS, Unreachable
from actors.bus.messages.specs import AccountSpec, ProxySpec
from actors.forwarding.limits.limits import Limits
from actors.forwarding.reporting.usage_reporter import UsageReporter
from actors.metrics.account_usage import UsageLedger
from tests.kit.forwarding_rig import spec


class Hand:
    """A clock that is set by hand."""

    time = 100.0

    def __call__(self) -> float:
        return self.time


class Collector:
    """A collector at the other end of a mailbox; `down` while it cannot be reached."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        self._loop = loop
        self.book = UsageLedger(folder)
        self.down = False
        self.reports: list[ReportUsage] = []

    def ask(self, to: str, message: Any, on_reply: Callable[[Any], None], timeout: float = 5.0) -> None:
        assert to == METRICS
        self.reports.append(message)
        reply = Unreachable(to, "it is not on the bus") if self.down else Usage(self.book.update(message))
        self._loop.call_soon(lambda: on_reply(reply))


class Process:
    """The accounts of one process of a proxy."""

    def __init__(self, world: World, instance: int) -> None:
        self.limits = Limits(world.loop)
        self.reporter = UsageReporter(world.loop, world.collector, self.limits, instance)  # type: ignore[arg-type]

    def configure(self, *accounts: AccountSpec) -> None:
        config: ProxySpec = spec(1, accounts=accounts, auth_required=True)
        self.limits.configure(config, ())
        self.reporter.configured(config.id)

    def uses(self, count: int) -> None:
        self.limits.accounts["ada"].count(True, count)

    def knows(self) -> int:
        return self.limits.accounts["ada"].state().usage.bytes_in


class World:
    def __init__(self, folder: Path) -> None:
        self.hand = Hand()
        self.loop = Loop(self.hand)
        self.collector = Collector(self.loop, folder)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.hand.time += 0.1
            self.loop.turn(0)
            self.loop.turn(0)

    def kept(self) -> int:
        return self.collector.book.usage("px1")["acc_1"].bytes_in


ADA = AccountSpec("acc_1", "ada", None, quota=1000)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "metrics")
    yield made
    made.collector.book.close()
    made.loop.close()


def test_what_is_used_is_reported_within_a_second_or_so_and_nothing_is_said_of_nothing(world: World) -> None:
    one = Process(world, 1)
    one.configure(ADA)
    world.pass_time(20)
    reported = len(world.collector.reports)
    world.pass_time(60)
    assert len(world.collector.reports) == reported
    one.uses(300)
    world.pass_time(1.2)
    assert world.kept() == 300
    world.pass_time(60)
    assert len(world.collector.reports) == reported + 1


def test_a_new_process_begins_with_what_the_one_before_it_has_used(world: World) -> None:
    old, new = Process(world, 1), Process(world, 2)
    old.configure(ADA)
    old.uses(300)
    world.pass_time(1.2)
    new.configure(ADA)
    world.pass_time(1.2)
    assert new.knows() == 300
    old.uses(100)
    old.reporter.settle(lambda _acknowledged: None, final=True)
    new.uses(5)
    world.pass_time(2)
    assert (new.knows(), world.kept()) == (405, 405)


def test_of_two_processes_each_receives_what_the_other_uses_and_the_quota_is_one(world: World) -> None:
    processes = [Process(world, number) for number in (1, 2)]
    for each in processes:
        each.configure(ADA)
    for _ in range(6):
        for each in processes:
            each.uses(100)
        world.pass_time(1.2)
    assert all(each.limits.accounts["ada"].exhausted for each in processes)


def test_without_the_collector_counting_goes_on_and_is_reported_when_it_is_back(world: World) -> None:
    one = Process(world, 1)
    world.collector.down = True
    one.configure(ADA)
    one.uses(300)
    world.pass_time(5)
    assert one.knows() == 300
    world.collector.down = False
    world.pass_time(1.5)
    assert world.kept() == 300


def test_a_reset_is_received_with_the_next_answer_and_what_comes_after_it_counts(world: World) -> None:
    one = Process(world, 1)
    one.configure(ADA)
    one.uses(1000)
    world.pass_time(1.5)
    assert one.limits.accounts["ada"].exhausted
    world.collector.book.reset("px1", "acc_1")
    one.reporter.settle(lambda _acknowledged: None)
    world.pass_time(0.1)
    assert (one.knows(), one.limits.accounts["ada"].exhausted) == (0, False)
    one.uses(7)
    world.pass_time(1.5)
    assert (one.knows(), world.kept()) == (7, 7)


def test_bytes_that_move_while_the_answer_is_under_way_are_not_lost(world: World) -> None:
    one = Process(world, 1)
    one.configure(ADA)
    one.uses(100)
    one.reporter.settle(lambda _acknowledged: one.uses(11))
    one.uses(22)
    world.pass_time(3)
    assert (one.knows(), world.kept()) == (133, 133)


def test_an_account_of_a_quota_is_awaited_until_the_collector_has_answered(world: World) -> None:
    one = Process(world, 1)
    world.collector.down = True
    one.configure(ADA)
    world.pass_time(3)
    assert not one.reporter.has_totals
    world.collector.down = False
    world.pass_time(1.5)
    assert one.reporter.has_totals
    one.configure(ADA, AccountSpec("acc_2", "bob", None))
    assert one.reporter.has_totals
