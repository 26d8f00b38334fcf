"""What processes count of accounts and what the collector books of it, and quotas; by a clock set by hand."""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.loop import TURN_MAX
from actors.bus.messages.accounts import QueryUsage
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.limits.accounts import QUOTA_GRACE
from actors.forwarding.limits.earlier_usage import ACCOUNTS_MAX
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.usage import (
    AWAY_AFTER,
    BEYOND_MAX,
    CHECKED_EACH,
    GRACE_BYTES,
    NO_MORE_AFTER,
    TIME_PERIOD,
    UNKNOWN_MAX,
    WINDOW_MIN,
    WINDOW_OF_PROCESS_MIN,
)
from actors.forwarding.protocols.failures import QUOTA_UNAVAILABLE
from actors.metrics.usage.account_usage import UsageLedger
from actors.metrics.usage.service import LINES_AT_ONCE
from actors.state.booked_usage import open_booked
from actors.state.table import FOREVER
from actors.state.usage import MILLISECONDS, UsageOfProcess, period_word
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.unit.actors.forwarding.usage_world import ADA, Process, Service, World

MIB = 1 << 20
RICH = replace(ADA, quota=20 * MIB)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_what_is_used_is_booked_within_two_seconds_and_no_one_asks_for_what_is_known(world: World) -> None:
    one = Process(world)
    one.configure(ADA)
    world.pass_time(20)
    assert len(world.collector.asked) == 1
    one.uses(300)
    world.pass_time(2.1)
    assert world.booked() == 300
    world.pass_time(60)
    assert len(world.collector.asked) == 1


def test_what_the_collector_is_asked_for_is_of_this_moment(world: World) -> None:
    one, other = Process(world), Process(world, "px2")
    one.configure(AccountSpec("acc_1", "ada", None))
    other.configure(AccountSpec("acc_1", "ada", None))
    one.ada.requested("192.0.2.1")
    one.ada.connected(1)
    one.uses(300)
    for _ in range(2):
        other.ada.connected(1)
    activity = world.collector.activity()
    assert (activity.usage.bytes_in, activity.connections, activity.client_ip) == (300, 3, "192.0.2.1")
    assert activity.proxies == ("px2", "px1")
    other.die()
    assert world.collector.activity().connections == 1


def test_refusals_are_counted_for_the_account_that_they_are_of(world: World) -> None:
    one = Process(world)
    one.configure(ADA)
    for user in ("ada", "unknown", "ada"):
        one.limits.count_refusal(user)
    world.pass_time(2.1)
    [(refusals,)] = world.collector.service._ledger.database.execute("SELECT sum(refusals) FROM hours").fetchall()
    assert refusals == 2


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
    one, holder = Process(world), Holder()
    one.configure(ADA)
    meter = one.limits.meter()
    meter.attach(one.limits.accounts["ada"], holder)
    one.uses(ADA.quota + beyond)
    world.turn()
    assert holder.ended == at_once
    world.pass_time(QUOTA_GRACE + 0.1)
    assert holder.ended == {"account_quota_reached"}
    meter.close()
    world.close()


def test_an_idle_connection_ends_when_others_have_used_up_the_quota(world: World) -> None:
    one, other, holder = Process(world), Process(world, "px2"), Holder()
    for each in (one, other):
        each.configure(ADA)
    other.limits.meter().attach(other.limits.accounts["ada"], holder)
    world.pass_time(20)
    one.uses(ADA.quota)
    world.pass_time(1.5 + QUOTA_GRACE)
    assert holder.ended == {"account_quota_reached"}


def test_a_new_process_begins_with_what_all_have_used(world: World) -> None:
    old, new = Process(world), Process(world)
    old.configure(ADA)
    old.uses(300)
    new.configure(ADA)
    world.turn()
    assert new.knows() == 300
    old.uses(100)
    new.uses(5)
    assert (old.knows(), new.knows()) == (405, 405)
    world.pass_time(2)
    assert (old.knows(), new.knows(), world.booked()) == (405, 405, 405)


def test_proxies_have_a_quota_together_and_each_knows_it_at_once(world: World) -> None:
    processes = [Process(world, f"px{number}") for number in range(3)]
    for each in processes:
        each.configure(ADA)
    for each in processes:
        world.pass_time(1.2)
        each.uses(400)
        assert [one.ada.exhausted for one in processes] == [each is processes[-1]] * 3


def test_without_the_collector_counting_goes_on_and_is_booked_when_it_is_back(world: World) -> None:
    world.collector.kill()
    one = Process(world)
    one.configure(ADA)
    one.uses(300)
    world.pass_time(5)
    assert (one.knows(), one.ada.known) == (300, False)
    world.collector.restart()
    world.pass_time(3)
    assert (world.booked(), one.knows(), one.ada.known) == (300, 300, True)


def test_a_reset_holds_at_once_and_what_comes_after_it_counts(world: World) -> None:
    one, other = Process(world), Process(world, "px2")
    for each in (one, other):
        each.configure(ADA)
    world.turn()
    one.uses(1000)
    assert one.ada.exhausted
    world.collector.reset()
    world.turn()
    assert [(each.knows(), each.ada.exhausted) for each in (one, other)] == [(0, False)] * 2
    one.uses(7)
    assert other.knows() == 7
    world.pass_time(2.5)
    assert (one.knows(), world.booked()) == (7, 7)


def test_of_an_account_with_a_quota_what_was_used_is_awaited(world: World) -> None:
    world.collector.down = True
    one = Process(world)
    one.configure(ADA)
    world.pass_time(3)
    assert not one.earlier.is_known
    world.collector.down = False
    world.pass_time(1.5)
    assert one.earlier.is_known
    one.configure(ADA, AccountSpec("acc_2", "bob", None))
    assert one.earlier.is_known


def test_the_time_of_open_connections_is_counted_each_minute(world: World) -> None:
    one = Process(world)
    one.configure(AccountSpec("acc_1", "ada", None))
    one.ada.connected(1)
    one.ada.connected(1)
    world.pass_time(TIME_PERIOD + 3)
    database = world.collector.service._ledger.database
    [(milliseconds,)] = database.execute("SELECT sum(milliseconds) FROM hours").fetchall()
    assert milliseconds == pytest.approx(2 * 1000 * TIME_PERIOD, rel=0.05)


def test_without_a_table_a_process_counts_for_itself_with_what_the_collector_says(tmp_path: Path) -> None:
    world = World(tmp_path)
    before, explaining = Process(world), Process(world, shares=False)
    before.configure(ADA)
    before.uses(300)
    explaining.configure(ADA)
    world.turn()
    assert (explaining.knows(), explaining.earlier.is_known) == (300, True)
    before.uses(100)
    explaining.limits.usage.forget_totals()
    assert not explaining.earlier.is_known
    replied: list[bool] = []
    explaining.earlier.ask(lambda: replied.append(explaining.earlier.is_known))
    world.turn()
    assert (replied, explaining.knows()) == ([True], 400)
    world.close()


# --- periods ---


def test_a_different_period_begins_at_zero_until_the_collector_says_more(world: World) -> None:
    one = Process(world)
    one.configure(ADA)
    one.uses(300)
    world.pass_time(2.2)
    world.collector.down = world.collector.silent = True
    one.configure(replace(ADA, period="day"))
    assert one.knows() == 0
    one.uses(5)
    assert one.knows() == 5
    world.collector.down = world.collector.silent = False
    world.pass_time(3)
    assert one.knows() == 305


def test_a_period_ends_by_the_clock_of_the_process_and_the_total_of_the_one_before_counts_no_more(
    world: World, tmp_path: Path
) -> None:
    one = Process(world)
    one.configure(replace(ADA, period="day"))
    one.uses(300)
    world.pass_time(2.2)
    until = one.ada.until
    assert until is not None
    one.ada.roll(until + 1)
    one.uses(2)
    assert (one.knows(), one.ada.since) == (2, until)
    booked = open_booked(tmp_path / "state")
    assert booked is not None
    [line] = booked.lines_of("acc_1")
    name = line.instance, line.serial
    assert booked.write_total("acc_1", period_word("day", until), 40, 0, {name: (301, 0)})
    assert (one.knows(), one.ada.known) == (41, True)
    booked.close()


# --- how far it goes ---


def test_far_from_the_quota_much_may_move_at_once_and_without_one_all(world: World) -> None:
    one = Process(world)
    one.configure(replace(ADA, quota=100_000 * MIB))
    world.turn()
    assert one.ada.room() == 100_000 * MIB // 256
    one.configure(RICH)
    assert one.ada.room() == WINDOW_MIN
    one.configure(AccountSpec("acc_1", "ada", None))
    assert one.ada.room() > 500 * MIB


def test_before_the_collector_has_said_what_was_used_little_is(world: World) -> None:
    world.collector.silent = True
    one = Process(world)
    one.configure(RICH)
    one.uses(UNKNOWN_MAX)
    assert (one.ada.known, one.ada.room()) == (False, 0)
    woken = list[float]()
    assert one.ada.wait(lambda: woken.append(world.hand.time))
    began = world.hand.time
    world.pass_time(AWAY_AFTER + 0.1)
    assert woken[0] >= began + AWAY_AFTER, "a collector that is missing delays nothing for long"
    world.collector.silent = False
    world.pass_time(1.1)
    assert one.ada.room() == WINDOW_MIN
    assert one.ada.known


def test_at_the_number_of_the_collector_connections_wait_until_there_is_a_larger_one(
    world: World, tmp_path: Path
) -> None:
    one = Process(world)
    one.configure(RICH)
    world.turn()
    world.collector.silent = True
    booked = open_booked(tmp_path / "state")
    assert booked is not None

    def may_use(number: int) -> None:
        assert booked.write_total("acc_1", period_word("total", 0.0), 0, 0, {}, number)

    may_use(100_000)
    world.hand.time += CHECKED_EACH
    world.turn()
    assert one.ada.room() == 100_000
    one.uses(100_000)
    assert one.ada.room() == 0
    woken: list[int] = []
    assert one.ada.wait(lambda: woken.append(1))
    world.pass_time(AWAY_AFTER / 2)
    assert not woken
    may_use(150_000)
    world.pass_time(0.2)
    assert (woken, one.ada.room()) == ([1], 50_000)
    one.uses(50_000)
    assert one.ada.wait(lambda: woken.append(2))
    world.pass_time(AWAY_AFTER + 0.2)
    assert (woken, one.ada.room()) == ([1, 2], WINDOW_MIN), "it goes on without the collector"
    one.uses(WINDOW_MIN)
    assert one.ada.wait(lambda: woken.append(3))
    world.pass_time(AWAY_AFTER + 0.2)
    assert one.ada.room() == WINDOW_MIN, "twice as much"
    may_use(FOREVER)
    world.turn()
    assert not one.ada.wait(lambda: None)
    booked.close()


def test_what_may_be_used_without_the_fleets_database_ends_and_goes_on_when_that_is_back(
    world: World, tmp_path: Path
) -> None:
    one = Process(world)
    one.configure(RICH)
    world.turn()
    world.collector.silent = True
    booked = open_booked(tmp_path / "state")
    assert booked is not None

    def may_use(number: int, no_more: bool) -> None:
        assert booked.write_total("acc_1", period_word("total", 0.0), 0, 0, {}, number, no_more)
        world.hand.time += CHECKED_EACH
        world.turn()
        one.ada.room()

    ended: list[float] = []
    one.ada.on_reached = lambda: ended.append(world.hand.time)
    may_use(100_000, no_more=True)
    assert (one.ada.room(), one.limits.user_refusal("ada", "127.0.0.1")) == (100_000, None)
    one.uses(100_000)
    assert (one.ada.room(), one.ada.is_unavailable, one.ada.exhausted) == (0, True, False)
    assert one.limits.user_refusal("ada", "127.0.0.1") is QUOTA_UNAVAILABLE
    began, woken = world.hand.time, list[int]()
    assert one.ada.wait(lambda: woken.append(1))
    for _ in range(3):
        world.pass_time(AWAY_AFTER * 0.9)
        may_use(100_000, no_more=True)
    assert (ended, woken) == ([], []), "a short outage ends nothing"
    for _ in range(3):
        world.pass_time(AWAY_AFTER * 0.9)
        may_use(100_000, no_more=True)
    assert ended
    assert ended[0] - began == pytest.approx(NO_MORE_AFTER, abs=0.1)
    may_use(150_000, no_more=False)
    world.pass_time(0.1)
    assert (woken, one.ada.is_unavailable, one.ada.room()) == ([1], False, 50_000)
    one.uses(50_000)
    assert one.ada.wait(lambda: woken.append(2))
    assert not one.ada.is_unavailable, "the database is there: more will come"
    may_use(150_001, no_more=False)
    assert one.ada.room() > 0, "the last byte of an odd quota may be used, too"
    may_use(FOREVER, no_more=True)
    assert (one.ada.is_unavailable, one.ada.wait(lambda: None)) == (False, False)
    booked.close()


def test_while_it_lets_no_more_be_used_the_collector_is_asked_soon_again_and_then_less_often(
    world: World, tmp_path: Path
) -> None:
    one = Process(world)
    one.configure(RICH)
    world.turn()
    world.collector.silent = True
    booked = open_booked(tmp_path / "state")
    assert booked is not None
    assert booked.write_total("acc_1", period_word("total", 0.0), 0, 0, {}, 100_000)
    world.hand.time += CHECKED_EACH
    world.turn()
    one.ada.room()
    one.uses(60_000)
    began, asked = world.hand.time, list[float]()
    for _ in range(300):
        one.ada.room()
        if len(world.collector.asked) > 1 + len(asked):
            asked.append(round(world.hand.time - began, 2))
        world.hand.time += 0.01
        world.turn()
    assert asked == pytest.approx([0.0, 0.05, 0.15, 0.35, 0.75, 1.25, 1.75, 2.25, 2.75], abs=0.03)
    assert booked.write_total("acc_1", period_word("total", 0.0), 0, 0, {}, 100_002)
    world.turn()
    one.ada.room()
    one.uses(30_000)
    one.ada.room()
    assert len(world.collector.asked) == 2 + len(asked), "of what a new number lets be used, at once"
    booked.close()


@pytest.mark.parametrize("collector", ["there", "down"])
def test_processes_that_race_stay_within_a_mebibyte_together_of_the_quota(world: World, collector: str) -> None:
    """Each moves what it may in each turn: all that they do at once is bounded."""
    quota = 8 * MIB
    processes = [Process(world, f"px{number % 5}") for number in range(20)]
    for each in processes:
        each.configure(replace(ADA, quota=quota))
    world.turn()
    if collector == "down":
        world.collector.kill()
    while True:
        rooms = [each.ada.room() for each in processes]
        assert sum(rooms) <= max(WINDOW_MIN, len(processes) * WINDOW_OF_PROCESS_MIN)
        if not any(rooms):
            break
        for each, room in zip(processes, rooms, strict=True):
            each.uses(room)
        world.hand.time += 0.001
        world.turn()
    assert all(each.ada.exhausted for each in processes)
    world.collector.restart()
    world.pass_time(3)
    assert quota <= world.booked() <= quota + MIB


def test_the_collector_goes_on_while_it_loads_what_its_first_event_needs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_load = threading.Event()
    monkeypatch.setattr("actors.metrics.usage.service.load_models", lambda: may_load.wait(5))
    one = Process(world)
    one.configure(ADA)
    world.collector.service.set_warning(80)
    one.uses(900)
    world.pass_time(4)
    one.uses(7)
    world.pass_time(2.1)
    assert (world.booked(), world.collector.events) == (907, [])
    may_load.set()
    wait_until(lambda: bool(world.loop.turn(0.01) or world.collector.events), "it is published", 5)
    assert [each.type for each in world.collector.events] == ["account.quota_warning"]


def test_what_many_processes_may_move_at_once_beyond_a_quota_is_a_mebibyte_together(world: World) -> None:
    processes = [Process(world, f"px{number}") for number in range(90)]
    for each in processes:
        each.configure(ADA)
    world.turn()
    processes[0].uses(ADA.quota)
    world.hand.time += 0.1
    world.turn()
    assert 0 < sum(each.ada.room() for each in processes) <= BEYOND_MAX - GRACE_BYTES


def test_while_the_collector_is_away_all_together_hold_the_quota(world: World) -> None:
    one, other = Process(world), Process(world, "px2")
    for each in (one, other):
        each.configure(RICH)
    world.turn()
    world.collector.kill()
    for each in itertools.cycle((one, other)):
        world.pass_time(0.1)
        room = min(100_000, each.ada.room())
        if not room:
            break
        each.uses(room)
    assert one.knows() == other.knows() == RICH.quota + GRACE_BYTES
    world.collector.restart()
    world.pass_time(3)
    assert one.knows() == other.knows() == world.booked() == RICH.quota + GRACE_BYTES


# --- deaths ---


def test_what_a_process_had_counted_when_it_died_counts_on_and_is_booked_once(world: World) -> None:
    one, other = Process(world), Process(world)
    for each in (one, other):
        each.configure(RICH)
    one.uses(1_000)
    world.pass_time(3)
    one.uses(500)
    one.die()
    assert other.knows() == 1_500
    third = Process(world)
    third.configure(RICH)
    world.turn()
    assert third.knows() == 1_500
    third.uses(200)
    world.pass_time(3)
    assert other.knows() == third.knows() == world.booked() == 1_700


def test_an_account_that_comes_back_has_another_line_and_what_was_in_the_one_before_is_booked(world: World) -> None:
    one = Process(world)
    one.configure(ADA, AccountSpec("acc_2", "bob", None))
    one.uses(300)
    world.collector.kill()
    one.configure(AccountSpec("acc_2", "bob", None))
    one.configure(ADA, AccountSpec("acc_2", "bob", None))
    one.uses(4)
    assert one.knows() == 4, "what was used before isn't known"
    world.collector.restart()
    world.pass_time(3)
    assert (world.booked(), one.knows()) == (304, 304)
    assert len(one.limits.usage.by_id) == 2


def test_an_account_that_is_removed_goes_with_its_last_connection(world: World) -> None:
    one = Process(world)
    one.configure(ADA)
    counter = one.ada
    counter.connected(1)
    one.limits.usage.release("acc_1")
    counter.count(True, 5)
    assert list(one.limits.usage.by_id) == ["acc_1"]
    counter.connected(-1)
    assert not one.limits.usage.by_id
    counter.count(True, 6)
    world.pass_time(3)
    assert world.booked() == 11, "also what came behind the end"


def test_what_an_account_that_came_back_counts_late_and_anew_is_all_booked(world: World) -> None:
    one = Process(world)
    one.configure(ADA)
    late = one.ada
    one.uses(300)
    one.limits.usage.release("acc_1")
    new = one.limits.usage.acquire("acc_1")
    new.configure("ada", 0, "total", 0.0)
    new.count(True, 1000)
    new.connected(1)
    late.count(True, 7)
    new.count(True, 500)
    world.pass_time(1.5)
    new.count(True, 30)
    late.count(True, 70)
    world.pass_time(3)
    assert world.booked() == 300 + 1000 + 7 + 500 + 30 + 70
    assert world.collector.activity().connections == 1
    assert not one.limits.usage._changed
    one.limits.usage.discard("acc_1")
    late.count(True, 9)
    world.pass_time(3)
    assert (world.booked(), world.collector.activity().connections) == (1916, 0)
    assert world.collector.service._ledger.lines() == [], "no line is left"


def test_what_finds_no_line_is_a_problem_and_booked_once_there_is_one_though_the_account_is_gone(world: World) -> None:
    failures: list[str] = []
    one, hanging = Process(world), UsageOfProcess(world.machine.state())
    one.configure(AccountSpec("acc_1", "ada", None))
    one.limits.usage._process.live.on_failure = failures.append
    made, account = hanging.live.made(), hanging.account("acc_1")
    assert made is not None
    with made.exclusive(account._key) as alone:
        assert alone
        one.uses(300)
        assert not failures, "it may be there in a moment"
        world.pass_time(1.5)
        assert failures
        one.limits.usage.discard("acc_1")
        world.pass_time(3)
    world.pass_time(3)
    assert world.booked() == 300
    assert not one.limits.usage._changed


def test_an_account_whose_id_is_too_long_for_a_line_is_a_problem(world: World) -> None:
    failures: list[str] = []
    one, long_id = Process(world), "acc_" + 15 * "ü"
    one.configure(AccountSpec(long_id, "ada", None))
    one.limits.usage._process.live.on_failure = failures.append
    one.uses(1)
    world.pass_time(1.5)
    assert [long_id in each for each in failures] == [True]


def test_a_process_that_lives_though_it_is_on_no_list_loses_nothing_and_writes_in_no_line_of_another(
    world: World,
) -> None:
    one, other = Process(world), Process(world)
    one.configure(RICH)
    one.ada.connected(1)
    one.uses(1000)
    world.pass_time(2)
    world.machine.end(one.state)
    other.configure(RICH)
    total = 1000
    for _ in range(5):
        other.uses(10)
        one.uses(100)
        total += 110
        world.pass_time(0.7)
    world.pass_time(3)
    assert world.booked() == other.knows() == one.knows() == total


# --- thousands of accounts ---


def many(count: int) -> list[AccountSpec]:
    return [AccountSpec(f"acc_{number}", f"user{number}", None, quota=10 * WINDOW_MIN) for number in range(count)]


def test_many_accounts_are_asked_for_one_message_after_the_other_and_booked_in_turns(world: World) -> None:
    process = Process(world)
    process.configure(*many(3 * ACCOUNTS_MAX + 10))
    for _ in range(10):
        world.turn()
    assert [len(each.periods) for each in world.collector.asked] == [ACCOUNTS_MAX] * 3 + [10]
    assert process.earlier.is_known
    world.pass_time(2)
    for account in process.limits.accounts.values():
        account.usage.count(True, 7)
    world.hand.time += 1.0
    world.loop.turn(0)
    service = world.collector.service
    service._book_changed()
    assert 0 < len(service._changed) <= 3 * ACCOUNTS_MAX + 10 - LINES_AT_ONCE
    world.pass_time(3)
    kept = service._ledger.usage({f"acc_{number}": "total" for number in range(3 * ACCOUNTS_MAX + 10)})
    assert {each.usage.bytes_in for each in kept.values()} == {7}


def test_what_a_collector_that_went_away_meanwhile_has_not_said_it_is_asked_again(world: World) -> None:
    process = Process(world)
    world.collector.down = True
    process.configure(*many(2 * ACCOUNTS_MAX))
    replied: list[bool] = []
    process.earlier.ask(lambda: replied.append(process.earlier.is_known))
    world.turn()
    assert replied == [False]
    world.collector.down = False
    world.pass_time(1.5)
    assert process.earlier.is_known
    assert isinstance(world.collector.asked[-1], QueryUsage)


def test_the_collector_reads_at_its_end_what_is_new_alone_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    process = Process(world)
    process.configure(*many(3 * LINES_AT_ONCE))
    world.pass_time(5)
    for number in range(2 * LINES_AT_ONCE):
        process.limits.accounts[f"user{number}"].usage.count(True, 7)
    booked: list[int] = []
    begun = [0]
    book, changes = UsageLedger.book, UsageLedger.changes
    monkeypatch.setattr(UsageLedger, "book", lambda self, line: (booked.append(line.line), book(self, line)))
    monkeypatch.setattr(UsageLedger, "changes", lambda self: (begun.append(len(booked)), changes(self))[1])
    world.close()
    assert len(booked) == len(set(booked)) == 2 * LINES_AT_ONCE
    assert max(after - before for before, after in itertools.pairwise(begun)) <= LINES_AT_ONCE
    monkeypatch.undo()
    ledger = UsageLedger(tmp_path / "metrics")
    kept = ledger.usage({f"acc_{number}": "total" for number in range(2 * LINES_AT_ONCE)})
    assert {each.usage.bytes_in for each in kept.values()} == {7}
    ledger.close()


def test_who_asks_for_accounts_has_those_lines_booked_alone_that_have_something_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(world)
    process.configure(*many(10))
    world.pass_time(3)
    process.limits.accounts["user3"].usage.count(True, 7)
    booked: list[str] = []
    book = UsageLedger.book
    monkeypatch.setattr(UsageLedger, "book", lambda self, line: (booked.append(line.account_id), book(self, line)))
    world.collector.service.receive(QueryUsage({f"acc_{number}": "total" for number in range(10)}), lambda _: None)
    assert booked == ["acc_3"]


def test_while_the_disk_is_full_the_collector_tries_once_in_each_period(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(world)
    process.configure(*many(5 * LINES_AT_ONCE))
    tries: list[int] = []

    def fail(_ledger: UsageLedger, _line: object) -> None:
        tries.append(1)
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(UsageLedger, "book", fail)
        world.collector.down = True  # it isn't asked
        world.pass_time(5)
        assert 4 <= len(tries) <= 6
    world.pass_time(3)
    assert len(world.collector.service._ledger.usage({each.id: "total" for each in many(5 * LINES_AT_ONCE)})) == 320


def test_a_reset_that_processes_could_not_be_let_know_at_once_they_know_in_the_next_period(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Process(world)
    one.configure(ADA)
    one.uses(300)
    world.pass_time(3)
    with monkeypatch.context() as patch:
        patch.setattr(Service, "_write_total", lambda *_: False)
        world.collector.reset()
    assert one.knows() == 300
    world.pass_time(1.1)
    assert one.knows() == 0


def test_lines_that_the_collector_before_has_freed_are_forgotten_though_the_file_could_not_be_read_at_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_ledger: UsageLedger) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    one = Process(world)
    one.configure(ADA)
    one.uses(300)
    world.pass_time(3)
    service = world.collector.service
    with service._ledger.changes():
        service._ledger.database.execute("INSERT INTO booked VALUES (99, 1, 1, 0, 0, 0, 0, 0)")
    with monkeypatch.context() as patch:
        patch.setattr(UsageLedger, "lines", fail)
        world.collector.restart()
        world.pass_time(1.5)
    world.pass_time(3)
    assert [instance for instance, _ in world.collector.service._ledger.lines()] == [1]


def test_the_time_of_very_many_connections_is_counted_in_portions(world: World) -> None:
    process = Process(world)
    process.configure(*many(40))
    for each in process.limits.accounts.values():
        each.usage.connected(1)
    world.pass_time(TIME_PERIOD - 1)
    counters = [each.usage for each in process.limits.accounts.values()]
    assert not any(each._changed for each in counters)
    world.hand.step = 2 * TURN_MAX
    most = 0
    for _ in range(20):
        world.pass_time(0.1)
        most = max(most, sum(each._changed for each in counters))
    assert 0 < most < 40
    world.pass_time(17)
    assert all(each._numbers[each._at + MILLISECONDS] >= 1000 * TIME_PERIOD for each in counters)


# --- whatever happens ---

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("use"), st.integers(0, 2), st.integers(1, 50_000)),
        st.tuples(st.sampled_from(["kill", "restart", "again"]), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("turn"), st.just(0), st.just(0)),
        st.tuples(st.just("time"), st.just(0), st.integers(1, 40)),
        st.tuples(st.just("die"), st.integers(0, 2), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_all_know_every_byte_at_any_moment_and_the_collector_books_each_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    world = World(tmp_path_factory.mktemp("used"))
    processes = [Process(world, proxy_id) for proxy_id in ("px1", "px1", "px2")]
    for each in processes:
        each.configure(RICH)
    world.turn()
    total = 0
    for what, which, number in steps:
        if what == "use":
            processes[which].uses(number)
            total += number
        elif what == "kill":
            world.collector.kill()
        elif what == "restart":
            world.collector.restart()
        elif what == "again" and not world.collector.down:
            processes[which].configure()
            processes[which].configure(RICH)
            world.turn()
        elif what == "die" and not world.collector.down:
            processes[which].die()
            processes[which] = Process(world, processes[which].proxy_id)
            processes[which].configure(RICH)
            world.turn()
        elif what == "turn":
            world.loop.turn(0)
        else:
            world.pass_time(number / 10)
        assert [each.knows() for each in processes] == [total] * 3
    world.collector.restart()
    world.pass_time(3)
    assert [each.knows() for each in processes] == [total] * 3
    assert total == 0 or world.booked() == total
    world.close()
