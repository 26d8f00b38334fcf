"""Windows of the week in a time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from actors.accounts.records import WeekSchedule
from tests.kit.tables import table

BERLIN = ZoneInfo("Europe/Berlin")
WEEKDAYS = (0, 1, 2, 3, 4)
OFFICE = WeekSchedule(("Europe/Berlin", ((WEEKDAYS, 8 * 60, 18 * 60),)))


def at(text: str, fold: int = 0) -> float:
    """Unix seconds of a wall time in Berlin."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp()


@table(
    ("moment", "is_open"),
    [
        ("2026-11-23T07:59:59", False),
        ("2026-11-23T08:00", True),
        ("2026-11-23T17:59:59", True),
        ("2026-11-23T18:00", False),
        ("2026-11-22T12:00", False),
        ("2026-07-20T08:00", True),
        ("2026-07-20T07:59:59", False),
    ],
)
def test_the_wall_clock_of_the_time_zone_decides_in_winter_and_summer(moment: str, is_open: bool) -> None:
    assert OFFICE.is_open(at(moment)) is is_open


@table(
    ("moment", "is_open"),
    [
        ("2026-11-21T21:59", False),
        ("2026-11-21T22:00", True),
        ("2026-11-22T01:59", True),
        ("2026-11-22T02:00", False),
        ("2026-11-22T22:00", False),
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_it_begins_on(moment: str, is_open: bool) -> None:
    saturday_night = WeekSchedule(("Europe/Berlin", (((5,), 22 * 60, 2 * 60),)))
    assert saturday_night.is_open(at(moment)) is is_open


def test_midnight_ends_a_day() -> None:
    monday = WeekSchedule(("Europe/Berlin", (((0,), 0, 1440),)))
    assert monday.is_open(at("2026-11-23T23:59:59"))
    assert not monday.is_open(at("2026-11-24T00:00"))


def test_without_windows_it_is_never_open() -> None:
    never = WeekSchedule(("UTC", ()))
    assert not never.is_open(at("2026-11-23T12:00"))
    assert never.closes_at(at("2026-11-23T12:00")) is None


def test_a_window_that_begins_in_the_hour_that_is_skipped_begins_when_the_clock_jumps() -> None:
    sunday = WeekSchedule(("Europe/Berlin", (((6,), 150, 240),)))
    jump = at("2026-03-29T03:00")
    assert not sunday.is_open(jump - 1)
    assert sunday.is_open(jump)
    assert not sunday.is_open(at("2026-03-29T04:00"))


def test_the_hour_that_occurs_twice_is_in_the_window_both_times() -> None:
    sunday = WeekSchedule(("Europe/Berlin", (((6,), 120, 150),)))
    assert sunday.is_open(at("2026-10-25T02:15", fold=0))
    assert sunday.is_open(at("2026-10-25T02:15", fold=1))
    assert not sunday.is_open(at("2026-10-25T02:30", fold=1))


def test_when_the_window_ends() -> None:
    assert OFFICE.closes_at(at("2026-11-23T09:00")) == at("2026-11-23T18:00")
    assert OFFICE.closes_at(at("2026-11-23T19:00")) is None


def test_windows_that_adjoin_are_one() -> None:
    both = WeekSchedule(("Europe/Berlin", ((WEEKDAYS, 8 * 60, 1440), (WEEKDAYS, 0, 6 * 60))))
    assert both.closes_at(at("2026-11-23T09:00")) == at("2026-11-24T06:00")


def test_a_time_zone_that_does_not_exist() -> None:
    with pytest.raises(KeyError):
        WeekSchedule(("Europe/Nowhere", ()))
