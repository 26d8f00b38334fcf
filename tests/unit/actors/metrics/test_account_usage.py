"""What accounts have used: every byte is booked once; periods, resets and hours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.messages.accounts import AccountUsage
from actors.metrics.usage.account_usage import GONE_FOR, RETENTION_DAYS, UsageLedger
from config.model.choices import PERIODS, period_at
from config.model.subscriptions import checked
from tests.kit.clocks import Clock
from tests.kit.live_state import counted_line
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
    ) -> AccountUsage:
        line = counted_line("a", (inward, outward, 0, 0, 0), proxy, instance, serial)
        with self.ledger.changes():
            self.ledger.book(line._replace(**more))  # type: ignore[arg-type]
        total = self.ledger.total(line.account_id)
        return AccountUsage("", 0.0, 0, 0) if total is None else total.usage

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


def test_of_each_line_the_difference_to_what_is_booked_counts(world: World) -> None:
    world.report(1, 10, 1)
    world.report(1, 20, 2)
    world.report(2, 100, 10, proxy="q")
    world.report(1, 20, 2)
    usage = world.report(1, 30, 3)
    assert (usage.bytes_in, usage.bytes_out) == (130, 13)
    total = world.ledger.total("a")
    assert total is not None
    assert total.booked == {(1, 1): (30, 3), (2, 1): (100, 10)}


def test_a_restart_of_the_collector_keeps_all_that_is_booked(world: World) -> None:
    world.report(1, 10)
    world.report(2, 5)
    world.restart()
    assert world.used() == 15
    world.report(2, 6)
    assert world.used() == 16


def test_a_transaction_that_fails_changes_nothing_and_the_line_is_booked_again(world: World) -> None:
    world.report(1, 10)

    def fail() -> None:
        with world.ledger.changes():
            world.ledger.book(counted_line("a", (25, 0, 0, 0, 0), "new", 1, 1))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert world.used() == 10
    world.report(1, 25, proxy="new")
    assert world.used() == 25


def test_the_lines_of_a_process_count_each_for_itself_in_any_order(world: World) -> None:
    world.report(1, 4, serial=2)
    world.report(1, 10, serial=1)
    world.report(1, 5, serial=2)
    assert world.used() == 15


def test_of_lines_that_are_free_nothing_is_kept_and_their_bytes_stay(world: World) -> None:
    world.report(1, 10)
    world.report(2, 7)
    with world.ledger.changes():
        world.ledger.forget_lines([(1, 1)])
    assert world.ledger.lines() == [(2, 1)]
    assert world.used() == 17


def test_numbers_that_are_below_what_is_booked_are_none(world: World) -> None:
    world.report(1, 10)
    assert world.report(1, 9).bytes_in == 10


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
    assert world.rows("accounts")[0][2:4] == ("ada", int(world.wall.now))


def test_a_removed_account_that_is_used_later_has_come_back_and_a_connection_that_ends_late_brings_it_not(
    world: World,
) -> None:
    world.report(1, 10)
    with world.ledger.changes():
        world.ledger.forget(["a"])
    world.report(1, 11, last_seen=world.wall.now + 1)
    world.wall.now += GONE_FOR + 1
    world.report(1, 12, last_seen=world.wall.now, final=True)
    assert world.rows("accounts")[0][3]
    world.report(2, 5, quota=10, last_seen=world.wall.now)
    world.report(2, 20, quota=10, last_seen=world.wall.now)
    assert world.rows("accounts")[0][3] == 0
    assert world.ledger.reached(10) == ["a"]


def test_a_line_that_has_nothing_new_is_not_written_again(world: World) -> None:
    world.report(1, 10, quota=100, last_seen=5.0)
    before = world.ledger.database.total_changes
    world.report(1, 10, quota=100, last_seen=5.0)
    assert world.ledger.database.total_changes == before
    world.report(1, 10, username="eve")
    assert world.rows("accounts")[0][2] == "eve"


def test_of_an_account_those_lines_are_not_booked_that_have_other_figures_or_another_period(world: World) -> None:
    world.report(1, 10)
    booked = counted_line("a", (10, 0, 0, 0, 0), "p", 1, 1)
    nothing, new = (booked._replace(serial=2, figures=(each, 0, 0, 0, 0)) for each in (0, 1))
    other = booked._replace(period="week")
    assert world.ledger.unbooked({"a": [booked, nothing, new, other], "b": [nothing]}) == [new, other, nothing]


def test_accounts_that_are_never_used_and_have_no_quota_leave_nothing(world: World) -> None:
    world.report(1, 0)
    assert world.ledger.usage({"a": "day"}) == {}
    assert world.report(1, 0, quota=100).bytes_in == 0
    assert world.ledger.usage({"a": "day"}).keys() == {"a"}


def test_the_last_use_is_over_all_processes_and_connections_are_those_of_the_lines(world: World) -> None:
    world.report(1, 1, last_seen=50.0, client_ip="192.0.2.1")
    world.report(2, 1, last_seen=40.0, client_ip="192.0.2.2", proxy="q")
    one, other = (counted_line("a", (1, 0, 0, 0, 0), proxy, each, 1) for each, proxy in ((1, "p"), (2, "q")))
    lines = {"a": [one._replace(connections=2), other._replace(connections=3), one._replace(proxy_id="r")]}
    activity = world.ledger.usage({"a": "total"}, lines)["a"]
    assert (activity.connections, activity.last_seen, activity.client_ip) == (5, 50.0, "192.0.2.1")
    assert activity.proxies == ("q", "p")


# --- hours ---


def test_figures_are_in_the_hour_and_the_day_in_which_they_are_reported(world: World) -> None:
    world.report(1, 0, figures=(10, 1, 2, 500, 1))
    world.wall.now += 3600
    world.report(1, 0, figures=(15, 1, 3, 700, 1))
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
    world.wall.now += (RETENTION_DAYS + 1) * 86400
    world.report(1, 11)
    with world.ledger.changes():
        world.ledger.prune()
    assert [row[3] for row in world.rows("hours")] == [1]
    assert [row[3] for row in world.rows("days")] == [1]
    assert world.used("total") == 11


def test_a_credential_is_counted_for_its_quota_alone_since_its_account_has_the_hours(world: World) -> None:
    world.report(1, 10, account_id="crd_1", quota=1000)
    world.report(1, 10, account_id="crd_2", serial=2)
    assert world.ledger.usage({"crd_1": "total"})["crd_1"].usage.bytes_in == 10
    assert world.ledger.usage({"crd_2": "total"}) == {}
    assert world.rows("hours") == []
    with world.ledger.changes():
        world.ledger.forget(["crd_1"])
    assert world.rows("accounts") == []


# --- quotas ---


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


def test_what_is_booked_is_reported_once(tmp_path: Path) -> None:
    used: list[tuple[str, tuple[int, ...]]] = []
    ledger = UsageLedger(tmp_path, on_use=lambda account_id, figures: used.append((account_id, tuple(figures))))
    with closing(ledger), ledger.changes():
        for figures in ((10, 20, 1, 5, 0), (10, 20, 1, 5, 0), (10, 25, 2, 9, 1)):
            ledger.book(counted_line("a", figures, "p", 1, 1))
    assert used == [("a", (10, 20, 1, 5, 0)), ("a", (0, 5, 1, 4, 1))]


@given(st.sampled_from([each for each in PERIODS if each != "total"]), st.floats(0, 4e9))
def test_the_next_period_begins_where_this_one_ends(kind: str, now: float) -> None:
    start, end = period_at(kind, now)
    assert end is not None
    assert start <= now < end
    assert period_at(kind, start) == (start, end)
    assert period_at(kind, end)[0] == end
