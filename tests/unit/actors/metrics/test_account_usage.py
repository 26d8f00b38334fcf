"""What accounts have used: restarts never step it, periods and resets begin anew."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.messages.accounts import AccountUsage, ReportUsage
from actors.metrics.account_usage import FOLDED_AFTER, UsageLedger
from config.model.quotas import PERIODS, period_at
from tests.kit.clocks import Clock


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock, self.wall = Clock(100.0), Clock(100.0)
        self.wall.now = moment("2026-03-11T12:00:00")
        self.ledger = UsageLedger(folder, self.clock, self.wall)

    def restart(self) -> None:
        self.ledger.close()
        self.ledger = UsageLedger(self.folder, self.clock, self.wall)

    def report(
        self, instance: int, inward: int, outward: int = 0, resets: int = -1, period: str = "day"
    ) -> AccountUsage:
        counted = AccountUsage(period, period_at(period, self.wall.now)[0], resets, inward, outward)
        return self.ledger.update(ReportUsage("p", instance, {"a": counted}))["a"]

    def used(self) -> int:
        usage = self.ledger.usage("p")["a"]
        return usage.bytes_in + usage.bytes_out


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "metrics")
    yield made
    made.ledger.close()


def test_reports_of_one_process_replace_each_other_and_those_of_several_add_up(world: World) -> None:
    world.report(1, 10, 1)
    world.report(1, 20, 2)
    world.report(2, 100, 10)
    total = world.report(1, 30, 3)
    assert (total.bytes_in, total.bytes_out) == (130, 13)


def test_a_restart_of_the_collector_keeps_what_was_saved(world: World) -> None:
    world.report(1, 10)
    world.report(2, 5)
    world.ledger.save()
    world.restart()
    assert world.used() == 15
    world.report(2, 6)
    assert world.used() == 16


def test_a_new_day_begins_with_nothing_also_for_a_process_that_is_late(world: World) -> None:
    world.report(1, 10)
    late = AccountUsage("day", period_at("day", world.wall.now)[0], 0, 11, 0)
    world.wall.now += 24 * 3600
    assert world.used() == 0
    reply = world.ledger.update(ReportUsage("p", 1, {"a": late}))["a"]
    assert (reply.bytes_in, reply.since) == (0, period_at("day", world.wall.now)[0])
    world.report(1, 3)
    assert world.used() == 3


def test_a_clock_that_was_wrong_and_is_set_right_leaves_no_account_stuck(world: World) -> None:
    world.wall.now += 10 * 365 * 24 * 3600
    world.report(1, 10)
    world.wall.now -= 10 * 365 * 24 * 3600
    world.report(1, 4)
    assert world.used() == 4


def test_after_a_reset_only_reports_that_know_of_it_count(world: World) -> None:
    known = world.report(1, 10).resets
    world.ledger.reset("p", "a")
    assert world.used() == 0
    reply = world.report(1, 15, resets=known)
    assert (reply.bytes_in, reply.resets) == (0, known + 1)
    assert world.report(1, 5, resets=reply.resets).bytes_in == 5
    assert world.report(2, 7, resets=-1).bytes_in == 12


def test_a_reset_survives_a_restart_before_any_report(world: World) -> None:
    known = world.report(1, 10).resets
    world.ledger.reset("p", "a")
    world.restart()
    assert world.used() == 0
    assert world.report(1, 15, resets=known).bytes_in == 0


def test_a_collector_that_lost_its_file_learns_the_resets_from_the_processes(world: World) -> None:
    assert world.report(1, 10, resets=7).resets == 7
    assert world.used() == 10


def test_another_period_begins_anew(world: World) -> None:
    world.report(1, 10, period="day")
    assert world.report(1, 0, period="month").bytes_in == 0


def test_processes_that_are_gone_are_folded_without_a_step(world: World) -> None:
    for instance in range(1, 8):
        world.report(instance, 10)
    world.clock.now += FOLDED_AFTER + 1
    world.report(8, 1)
    world.ledger.save()
    world.restart()
    assert world.used() == 71
    rows = world.ledger._database.execute("SELECT count(*) FROM usage").fetchone()
    assert rows[0] < 4


def test_forgotten_accounts_and_proxies_leave_nothing(world: World) -> None:
    world.report(1, 10)
    world.ledger.forget("p", ["b"])
    assert world.used() == 10
    world.ledger.forget("p", ["a"])
    assert world.ledger.usage("p") == {}
    world.report(1, 10)
    world.ledger.forget("p")
    world.restart()
    assert world.ledger.usage("p") == {}


# --- periods ---


@pytest.mark.parametrize(
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
