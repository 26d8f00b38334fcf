"""What an actor reports to the collector of its accounts, and how it applies the replies; by a clock set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.bus.messages.accounts import AccountTotal
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.limits.accounts import QUOTA_GRACE
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.usage import AWAY_AFTER, GRACE_BYTES, WINDOW_MIN
from actors.forwarding.reporting.usage_reporter import ACCOUNTS_MAX, TIME_PERIOD
from actors.usage_file import BYTES_IN, UsageFile, files, is_held, read
from tests.kit.tables import table
from tests.unit.actors.forwarding.usage_world import ADA, Process, World


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


def test_refusals_are_counted_for_the_account_that_they_are_of(world: World) -> None:
    one = Process(world, 1)
    one.configure(ADA)
    for user in ("ada", "unknown", "ada"):
        one.limits.count_refusal(user)
    assert one.ada.take_report().refusals == 2


def test_a_reply_about_a_former_counter_of_the_account_changes_nothing(world: World) -> None:
    one = Process(world, 1)
    one.configure(ADA)
    one.uses(300)
    world.pass_time(2)
    usage = one.ada.state().usage
    one.ada.apply_total(AccountTotal(usage.period, usage.since, 900, 0, one.ada.serial + 1, 300, 0))
    assert one.knows() == 300


class Holder:
    """A connection that the account may end."""

    client_ip = "192.0.2.1"
    meter = None

    def __init__(self) -> None:
        self.ended: set[str] = set()

    def measure(self, meter: Meter) -> None:
        """Of no matter."""

    def end(self, reason: str) -> None:
        self.ended.add(reason)

    def destinations_changed(self) -> None:
        """Of no matter."""


@table(("beyond", "at_once"), [(0, set()), (GRACE_BYTES, {"account_quota_reached"})])
def test_connections_that_go_far_beyond_the_quota_end_without_delay(
    tmp_path: Path, beyond: int, at_once: set[str]
) -> None:
    world = World(tmp_path / str(beyond))
    one, holder = Process(world, 1), Holder()
    one.configure(ADA)
    meter = one.limits.meter()
    meter.attach(one.limits.accounts["ada"], holder)
    one.uses(ADA.quota + beyond)
    world.turn()
    assert holder.ended == at_once
    world.pass_time(QUOTA_GRACE + 0.1)
    assert holder.ended == {"account_quota_reached"}
    meter.close()
    world.collector.book.close()
    world.loop.close()


def test_a_new_process_begins_with_what_the_one_before_it_has_used(world: World) -> None:
    old, new = Process(world, 1), Process(world, 2)
    old.configure(ADA)
    old.uses(300)
    world.pass_time(1.2)
    new.configure(ADA)
    world.turn()
    assert new.knows() == 300
    old.uses(100)
    old.reporter.settle(lambda _acknowledged: None)
    new.uses(5)
    world.pass_time(2)
    assert (new.knows(), world.kept()) == (405, 405)


def test_of_the_processes_of_two_proxies_each_receives_what_the_other_uses_and_the_quota_is_one(world: World) -> None:
    processes = [Process(world, 1, "px1"), Process(world, 2, "px2")]
    for each in processes:
        each.configure(ADA)
    for _ in range(6):
        for each in processes:
            each.uses(100)
        world.pass_time(1.2)
    assert all(each.ada.exhausted for each in processes)


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


def test_a_reset_is_received_with_the_next_reply_and_what_comes_after_it_counts(world: World) -> None:
    one = Process(world, 1)
    one.configure(ADA)
    one.uses(1000)
    world.pass_time(1.5)
    assert one.ada.exhausted
    with world.collector.book.changes():
        world.collector.book.reset(["acc_1"])
    one.reporter.settle(lambda _acknowledged: None)
    world.pass_time(0.1)
    assert (one.knows(), one.ada.exhausted) == (0, False)
    one.uses(7)
    world.pass_time(1.5)
    assert (one.knows(), world.kept()) == (7, 7)


def test_bytes_that_move_while_the_reply_is_under_way_are_not_lost(world: World) -> None:
    one = Process(world, 1)
    one.configure(ADA)
    one.uses(100)
    one.reporter.settle(lambda _acknowledged: one.uses(11))
    one.uses(22)
    world.pass_time(3)
    assert (one.knows(), world.kept()) == (133, 133)


def test_an_account_of_a_quota_is_awaited_until_the_collector_has_replied(world: World) -> None:
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


def test_the_time_of_open_connections_is_reported_each_minute(world: World) -> None:
    one = Process(world, 1)
    one.configure(ADA)
    one.ada.connected(1)
    one.ada.connected(1)
    world.pass_time(TIME_PERIOD + 2)
    last = world.collector.reports[-1].accounts["acc_1"]
    assert last.connections == 2
    assert last.milliseconds == pytest.approx(2 * 1000 * TIME_PERIOD, rel=0.05)


# --- periods ---


def test_a_different_period_begins_at_zero_until_the_collector_says_more(world: World) -> None:
    one = Process(world, 1)
    one.configure(ADA)
    one.uses(300)
    world.pass_time(1.2)
    world.collector.down = True
    one.configure(AccountSpec("acc_1", "ada", None, quota=1000, period="day"))
    assert one.knows() == 0
    one.uses(5)
    assert one.knows() == 5


def test_a_period_ends_by_the_clock_of_the_process_and_a_total_of_the_one_before_is_ignored(world: World) -> None:
    one = Process(world, 1)
    one.configure(AccountSpec("acc_1", "ada", None, quota=1000, period="day"))
    one.uses(300)
    world.turn()
    since, until = one.ada.since, one.ada.until
    assert until is not None
    one.ada.roll(until + 1)
    assert (one.knows(), one.ada.since) == (0, until)
    one.ada.apply_total(AccountTotal("day", since, 900, 0, one.ada.serial, 300, 0))
    assert one.knows() == 0
    one.ada.apply_total(AccountTotal("day", until, 40, 0, one.ada.serial, 300, 0))
    assert one.knows() == 40


# --- the window ---


MIB = 1 << 20


def near_its_quota(world: World, quota: int = 20 * MIB) -> Process:
    one = Process(world, 1)
    one.configure(AccountSpec("acc_1", "ada", None, quota=quota))
    world.pass_time(20)  # the reports after the start are over
    return one


def test_half_a_window_is_reported_at_once_and_a_whole_one_waits_for_the_reply(world: World) -> None:
    one = near_its_quota(world)
    assert one.ada.room() == WINDOW_MIN
    one.uses(WINDOW_MIN // 2 - 1)
    world.turn()
    assert world.kept() == 0
    one.uses(1)
    world.turn()
    assert world.kept() == WINDOW_MIN // 2
    assert one.ada.room() == WINDOW_MIN
    woken: list[int] = []
    assert not one.ada.wait(lambda: woken.append(1))
    one.uses(WINDOW_MIN)
    assert one.ada.room() == 0
    assert one.ada.wait(lambda: woken.append(1))
    world.turn()
    assert (woken, one.ada.room(), world.kept()) == ([1], WINDOW_MIN, WINDOW_MIN * 3 // 2)


def test_far_from_the_quota_the_window_is_wide_and_without_a_quota_there_is_none(world: World) -> None:
    one = near_its_quota(world, 100_000 * MIB)
    assert one.ada.room() == 100_000 * MIB // 256
    one.configure(AccountSpec("acc_1", "ada", None))
    assert one.ada.room() > 500 * MIB


@pytest.mark.parametrize("how", ["down", "silent"])
def test_while_the_collector_is_away_connections_go_on_with_the_last_totals(world: World, how: str) -> None:
    one = near_its_quota(world)
    setattr(world.collector, how, True)
    one.uses(WINDOW_MIN)
    woken: list[int] = []
    assert one.ada.wait(lambda: woken.append(1))
    world.pass_time(AWAY_AFTER + 0.1)
    assert woken == [1]
    assert one.ada.room() == WINDOW_MIN  # the window is twice as wide, and half of it used
    one.uses(WINDOW_MIN)
    assert one.ada.wait(lambda: woken.append(2))
    world.pass_time(4 * AWAY_AFTER)
    assert woken == [1, 2]
    assert one.ada.room() > WINDOW_MIN
    one.uses(20 * MIB - WINDOW_MIN)
    assert one.ada.exhausted  # by the last totals
    setattr(world.collector, how, False)
    world.pass_time(5)
    assert world.kept() == 20 * MIB + WINDOW_MIN


def test_processes_that_race_stay_within_a_window_each_of_the_quota(world: World) -> None:
    """Each moves as much as it may, and replies are late: no process ever sees what the others have under way."""
    quota = 8 * MIB
    processes = [Process(world, number, f"px{number}") for number in range(20)]
    for each in processes:
        each.configure(AccountSpec("acc_1", "ada", None, quota=quota))
    world.turn()
    while True:
        moved = [min(each.ada.room(), 65536) for each in processes if not each.ada.exhausted]
        if not moved:
            break
        for each in processes:
            if not each.ada.exhausted:
                each.uses(min(each.ada.room(), 65536))
        world.loop.turn(0)
    world.pass_time(2)
    assert quota <= world.kept() <= quota + len(processes) * MIB


# --- the file ---


def test_what_is_counted_is_in_the_file_at_once_and_a_released_account_gives_its_record_back(
    world: World, tmp_path: Path
) -> None:
    one = Process(world, 1)
    made: list[UsageFile] = []
    one.limits.usage.open_file = lambda: made.append(UsageFile(tmp_path, "px1", 1)) or made[-1]  # type: ignore[func-returns-value]
    one.configure(ADA, AccountSpec("acc_2", "bob", None))
    one.uses(300)
    [(path, proxy_id, instance)] = files(tmp_path)
    assert (proxy_id, instance, is_held(path)) == ("px1", 1, True)
    assert {each.account_id: each.numbers[BYTES_IN] for each in read(path)} == {"acc_1": 300, "acc_2": 0}
    world.collector.down = True
    one.configure(AccountSpec("acc_2", "bob", None))
    world.pass_time(2)
    assert {each.account_id for each in read(path)} == {"acc_1", "acc_2"}
    world.collector.down = False
    world.pass_time(2)
    assert {each.account_id for each in read(path)} == {"acc_2"}
    one.configure(ADA, AccountSpec("acc_2", "bob", None))
    one.uses(4)
    world.pass_time(2)
    assert world.kept() == 304


def test_more_accounts_than_fit_into_a_piece_of_the_file(tmp_path: Path) -> None:
    file = UsageFile(tmp_path, "px1", 1)
    slots = [file.slot(f"acc_{number}", number + 1) for number in range(1000)]
    for number, (numbers, at) in enumerate(slots):
        numbers[at + BYTES_IN] = number << 33
    found = {each.account_id: each.numbers[BYTES_IN] for each in read(file.path)}
    assert found == {f"acc_{number}": number << 33 for number in range(1000)}


# --- thousands of accounts ---


def many(count: int) -> list[AccountSpec]:
    return [AccountSpec(f"acc_{number}", f"user{number}", None, quota=10 * WINDOW_MIN) for number in range(count)]


def test_many_accounts_are_reported_in_messages_one_after_the_other(world: World) -> None:
    process = Process(world, 1)
    process.configure(*many(3 * ACCOUNTS_MAX + 10))
    world.pass_time(1.0)
    sizes = [len(each.accounts) for each in world.collector.reports]
    assert sizes == [ACCOUNTS_MAX] * 3 + [10]
    assert process.reporter.has_totals
    world.collector.reports.clear()
    for account in process.limits.accounts.values():
        account.usage.count(True, 1)
    world.pass_time(2.0)
    assert [len(each.accounts) for each in world.collector.reports] == sizes
    ended: list[bool] = []
    process.reporter.settle(ended.append)
    assert len(world.collector.reports) == 5, "the next message waits for the reply"
    for _ in range(4):
        world.turn()
    assert ended == [True]
    assert [len(each.accounts) for each in world.collector.reports[4:]] == sizes


def test_what_a_collector_that_went_away_amid_a_report_has_not_had_comes_later(world: World) -> None:
    process = Process(world, 1)
    process.configure(*many(2 * ACCOUNTS_MAX))
    world.pass_time(1.0)
    for account in process.limits.accounts.values():
        account.usage.count(True, 7)
    ended: list[bool] = []
    process.reporter.settle(ended.append)
    world.collector.down = True
    world.turn()
    assert ended == [False]
    world.collector.down = False
    world.pass_time(2.5)
    kept = world.collector.book.usage({f"acc_{number}": "total" for number in range(2 * ACCOUNTS_MAX)})
    assert {each.usage.bytes_in for each in kept.values()} == {7}
    assert not process.limits.usage.any_changed


def test_an_account_for_which_a_connection_waits_comes_first(world: World) -> None:
    process = Process(world, 1)
    process.configure(*many(4 * ACCOUNTS_MAX))
    world.pass_time(1.0)
    counters = [account.usage for account in process.limits.accounts.values()]
    for counter in counters:
        counter.count(True, 1)
    world.collector.reports.clear()
    process.reporter.settle(lambda _acknowledged: None)
    counters[-1].count(True, WINDOW_MIN)
    assert counters[-1].wait(lambda: None)
    assert counters[-1].id not in world.collector.reports[0].accounts
    world.turn()
    assert next(iter(world.collector.reports[1].accounts)) == counters[-1].id
    assert sum(counters[-1].id in each.accounts for each in world.collector.reports) == 1


def test_a_counter_that_is_gone_is_due_no_more(world: World) -> None:
    process = Process(world, 1)
    usage = process.limits.usage
    counter = usage.acquire("acc_1")
    usage.urgent(counter)
    usage.discard("acc_1")
    assert usage.take_urgent({}, 10) == []


def test_the_workers_of_a_proxy_have_the_window_together(world: World) -> None:
    """All move what they may at once, before the collector replies to any of them."""
    quota, workers = 8 << 20, 4
    processes = [Process(world, instance) for instance in range(1, workers + 1)]
    for each in processes:
        each.limits.usage.workers = workers
        each.configure(AccountSpec("acc_1", "ada", None, quota=quota))
    world.pass_time(1)
    for _ in range(1000):
        moved = [each.ada.room() for each in processes]
        assert sum(moved) <= WINDOW_MIN
        for each, count in zip(processes, moved, strict=True):
            each.uses(count)
        world.turn()
    assert [each.ada.exhausted for each in processes] == [True] * workers
    assert quota <= world.kept() <= quota + (1 << 20)
