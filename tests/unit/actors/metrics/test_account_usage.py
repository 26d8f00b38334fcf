"""What accounts have used: every byte counts once, whichever process dies; periods, resets and hours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.messages.accounts import AccountReport, AccountTotal, ReportUsage
from actors.metrics.account_usage import KEPT_DAYS, UsageLedger
from actors.usage_file import FileRecord
from config.model.choices import PERIODS, period_at
from config.model.subscriptions import checked
from tests.kit.clocks import Clock
from tests.kit.tables import table


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wall = Clock(moment("2026-03-11T12:00:00"))
        self.ledger = UsageLedger(folder, self.wall)

    def restart(self) -> None:
        self.ledger.close()
        self.ledger = UsageLedger(self.folder, self.wall)

    def report(
        self, instance: int, inward: int, outward: int = 0, serial: int = 1, proxy: str = "p", **more: object
    ) -> AccountTotal:
        counted = AccountReport(serial, "ada", 0, "day", inward, outward)
        message = ReportUsage(proxy, instance, {"a": replace(counted, **more)})  # type: ignore[arg-type]
        with self.ledger.changes():
            return self.ledger.update(message)["a"]

    def die(self, instance: int, inward: int, serial: int = 1, proxy: str = "p") -> None:
        with self.ledger.changes():
            self.ledger.take_file((proxy, instance), [FileRecord("a", (serial, inward, 0, 0, 0, 0, 0, 0))])

    def used(self, period: str = "day") -> int:
        usage = self.ledger.usage({"a": period})["a"].usage
        return usage.bytes_in + usage.bytes_out

    def rows(self, table: str) -> list[tuple[int, ...]]:
        with sqlite3.connect(f"file:{self.folder}/usage.sqlite?mode=ro", uri=True) as database:
            return database.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "metrics")
    yield made
    made.ledger.close()


def test_of_each_process_the_difference_to_its_last_report_counts(world: World) -> None:
    world.report(1, 10, 1)
    world.report(1, 20, 2)
    world.report(2, 100, 10, proxy="q")
    world.report(1, 20, 2)
    total = world.report(1, 30, 3)
    assert (total.bytes_in, total.bytes_out, total.reported_in, total.reported_out) == (130, 13, 30, 3)


def test_a_restart_of_the_collector_keeps_every_report_that_was_stored(world: World) -> None:
    world.report(1, 10)
    world.report(2, 5)
    world.restart()
    assert world.used() == 15
    world.report(2, 6)
    assert world.used() == 16


def test_a_transaction_that_fails_changes_nothing_and_the_report_comes_again(world: World) -> None:
    world.report(1, 10)

    def fail() -> None:
        with world.ledger.changes():
            world.ledger.update(ReportUsage("new", 1, {"a": AccountReport(1, "ada", 0, "day", 25, 0)}))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert world.used() == 10
    world.report(1, 25, proxy="new")
    assert world.used() == 25


def test_an_account_that_a_process_holds_anew_counts_from_zero_and_an_old_report_nothing(world: World) -> None:
    world.report(1, 10, serial=1)
    world.report(1, 4, serial=2)
    world.report(1, 10, serial=1)
    assert world.used() == 14


def test_what_a_dead_process_had_counted_counts_once_and_its_late_reports_do_not(world: World) -> None:
    world.report(1, 10)
    world.die(1, 17)
    assert world.used() == 17
    world.die(1, 17)
    with world.ledger.changes():
        assert world.ledger.update(ReportUsage("p", 1, {"a": AccountReport(1, "ada", 0, "day", 15, 0)})) == {}
    world.restart()
    world.die(1, 17)
    assert world.used() == 17
    assert world.rows("reports") == []


def test_an_account_that_only_a_file_knows_counts(world: World) -> None:
    world.die(1, 17)
    assert world.used() == 17


def test_a_new_day_begins_with_nothing_and_month_and_total_go_on(world: World) -> None:
    world.report(1, 10)
    world.wall.now += 24 * 3600
    assert world.used() == 0
    reply = world.report(1, 13)
    assert (reply.bytes_in, reply.since) == (3, period_at("day", world.wall.now)[0])
    assert [world.used(period) for period in PERIODS] == [3, 13, 13, 13]


def test_a_clock_that_was_wrong_and_is_set_right_leaves_no_account_stuck(world: World) -> None:
    world.wall.now += 10 * 365 * 24 * 3600
    world.report(1, 10)
    world.wall.now -= 10 * 365 * 24 * 3600
    world.report(1, 14)
    assert world.used() == 4
    assert world.rows("hours")[0][0] == world.wall.now // 3600


def test_a_reset_sets_all_periods_to_zero_and_counts_what_comes_then(world: World) -> None:
    world.report(1, 10)
    with world.ledger.changes():
        world.ledger.reset(["a", "unknown"])
    world.restart()
    assert [world.used(period) for period in PERIODS] == [0, 0, 0, 0]
    assert world.report(1, 15).bytes_in == 5
    assert [row[3] for row in world.rows("hours")] == [15]


def test_a_removed_account_leaves_its_hours_and_its_name(world: World) -> None:
    world.report(1, 10)
    with world.ledger.changes():
        world.ledger.forget(["a", "unknown"])
    assert world.used() == 0
    assert [row[3] for row in world.rows("hours")] == [10]
    assert world.rows("accounts")[0][2:4] == ("ada", 1)


def test_accounts_that_are_never_used_and_have_no_quota_leave_nothing(world: World) -> None:
    world.report(1, 0)
    assert world.ledger.usage({"a": "day"}) == {}
    assert world.report(1, 0, quota=100).bytes_in == 0
    assert world.ledger.holders(["a"]) == {("p", 1): ["a"]}


def test_connections_and_the_last_use_are_over_all_processes(world: World) -> None:
    world.report(1, 1, connections=2, last_seen=50.0, client_ip="192.0.2.1")
    world.report(2, 1, connections=3, last_seen=40.0, client_ip="192.0.2.2", proxy="q")
    activity = world.ledger.usage({"a": "total"})["a"]
    assert (activity.connections, activity.last_seen, activity.client_ip) == (5, 50.0, "192.0.2.1")
    assert activity.proxies == ("q", "p")
    world.die(1, 1)
    assert world.ledger.usage({"a": "total"})["a"].connections == 3


# --- hours ---


def test_figures_are_in_the_hour_and_the_day_in_which_they_are_reported(world: World) -> None:
    world.report(1, 10, 1, requests=2, milliseconds=500, refusals=1)
    world.wall.now += 3600
    world.report(1, 15, 1, requests=3, milliseconds=700, refusals=1)
    world.report(2, 7, proxy="q")
    hour = int(world.wall.now) // 3600
    assert world.rows("hours") == [
        (hour - 1, 1, 1, 10, 1, 2, 500, 1),
        (hour, 1, 1, 5, 0, 1, 200, 0),
        (hour, 1, 2, 7, 0, 0, 0, 0),
    ]
    assert world.rows("days") == [(hour // 24, 1, 1, 15, 1, 3, 700, 1), (hour // 24, 1, 2, 7, 0, 0, 0, 0)]


def test_a_closed_hour_does_not_change_when_the_clock_is_set_back(world: World) -> None:
    world.report(1, 10)
    world.wall.now += 3600
    world.report(1, 11)
    closed = world.rows("hours")[0]
    world.wall.now -= 1800
    world.report(1, 31)
    world.restart()
    world.report(1, 32)
    assert world.rows("hours")[0] == closed
    assert world.rows("hours")[1][3] == 22


def test_hours_are_kept_for_so_many_days(world: World) -> None:
    world.report(1, 10)
    world.wall.now += (KEPT_DAYS + 1) * 86400
    world.report(1, 11)
    with world.ledger.changes():
        world.ledger.prune()
    assert [row[3] for row in world.rows("hours")] == [1]
    assert [row[3] for row in world.rows("days")] == [1]
    assert world.used("total") == 11


def test_a_credential_is_counted_for_its_quota_alone_since_its_account_has_the_hours(world: World) -> None:
    def report(identifier: str, quota: int) -> None:
        with world.ledger.changes():
            counted = AccountReport(1, "", quota, "total", 10, 0)
            world.ledger.update(ReportUsage("p", 1, {identifier: counted}))

    report("crd_1", 1000)
    report("crd_2", 0)
    assert world.ledger.usage({"crd_1": "total"})["crd_1"].usage.bytes_in == 10
    assert world.ledger.usage({"crd_2": "total"}) == {}
    assert world.rows("hours") == []
    with world.ledger.changes():
        world.ledger.forget(["crd_1"])
    assert world.rows("accounts") == []


# --- quotas ---


def test_processes_are_informed_when_what_is_left_has_halved_and_when_nothing_is(world: World) -> None:
    for used in (100, 400, 600, 700, 999, 1100, 1200):
        world.report(1, used, quota=1000)
    left = [1000 - each.usage.bytes_in for each in world.ledger.crossings]
    assert left == [400, 1, -100]
    world.report(2, 0, quota=1000, proxy="q")
    pushes = world.ledger.pushes(["a"])
    assert pushes.keys() == {("p", 1), ("q", 2)}
    assert pushes["q", 2].accounts["a"] == AccountTotal("day", period_at("day", world.wall.now)[0], 1200, 0, 1, 0, 0)


def test_a_warning_and_the_end_of_a_quota_are_events_once_in_a_period_through_restarts(world: World) -> None:
    def events() -> list[str]:
        return [each.type.removeprefix("account.quota_") for each in world.ledger.notices.pending()]

    world.report(1, 799, quota=1000)
    assert events() == []
    world.report(1, 800, quota=1000)
    assert events() == ["warning"]
    world.restart()
    world.report(1, 1100, quota=1000)
    assert events() == ["warning", "reached"]
    [warning, reached] = world.ledger.notices.pending()
    assert (warning.data["percent"], warning.data["used"], reached.data["used"]) == (80.0, 800, 1100)
    assert reached.data["period_end"] == "2026-03-12T00:00:00.000Z"
    checked(warning.type, warning.data)
    checked(reached.type, reached.data)
    with world.ledger.changes():
        world.ledger.notices.published([warning, reached])
    world.report(1, 1200, quota=1000)
    assert events() == []
    world.wall.now += 86_400
    world.report(1, 2200, quota=1000)
    assert events() == ["warning", "reached"]
    with world.ledger.changes():
        world.ledger.reset(["a"])
    world.report(1, 3300, quota=1000)
    assert sorted(events()) == ["reached"] * 2 + ["warning"] * 2


def test_accounts_that_have_reached_their_quota_are_known_until_the_period_ends_or_is_reset(world: World) -> None:
    world.report(1, 999, quota=1000)
    assert world.ledger.reached(10) == []
    world.report(1, 1000, quota=1000)
    world.restart()
    assert (world.ledger.reached(10), world.ledger.reached(0)) == (["a"], [])
    world.wall.now += 86_400
    assert world.ledger.reached(10) == []
    world.report(1, 2000, quota=1000)
    assert world.ledger.reached(10) == ["a"]
    with world.ledger.changes():
        world.ledger.reset(["a"])
    assert world.ledger.reached(10) == []


# --- periods ---


@table(
    ("kind", "now", "start", "end"),
    [
        ("day", "2026-03-11T23:59:59", "2026-03-11T00:00:00", "2026-03-12T00:00:00"),
        ("week", "2026-03-11T12:00:00", "2026-03-09T00:00:00", "2026-03-16T00:00:00"),
        ("week", "2026-03-09T00:00:00", "2026-03-09T00:00:00", "2026-03-16T00:00:00"),
        ("month", "2024-02-29T12:00:00", "2024-02-01T00:00:00", "2024-03-01T00:00:00"),
        ("month", "2026-12-31T23:59:59", "2026-12-01T00:00:00", "2027-01-01T00:00:00"),
    ],
)
def test_periods_are_those_of_the_calendar(kind: str, now: str, start: str, end: str) -> None:
    assert period_at(kind, moment(now)) == (moment(start), moment(end))


@given(st.sampled_from([each for each in PERIODS if each != "total"]), st.floats(0, 4e9))
def test_the_next_period_begins_where_this_one_ends(kind: str, now: float) -> None:
    start, end = period_at(kind, now)
    assert end is not None
    assert start <= now < end
    assert period_at(kind, start) == (start, end)
    assert period_at(kind, end)[0] == end
