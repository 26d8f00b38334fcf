"""How long records are kept: by days, by size, and what is logged of it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.bus.messages.records import QueryLogs
from actors.bus.records import RecordBatch
from actors.logs.index import retain
from tests.kit.clocks import Clock
from tests.kit.records import NOON, SearchedIndex, row

DAY = 86_400.0


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
def index(tmp_path: Path, clock: Clock) -> Iterator[SearchedIndex]:
    """Five days, the last of them today, with one record each and a file of lines for the first two."""
    made = SearchedIndex(tmp_path, clock)
    for day in range(5):
        clock.now = NOON + day * DAY
        fill(made, day + 1, 1, clock.now)
        if day < 2:
            made.path.with_suffix(".jsonl").write_text("x" * 1000)
    yield made
    made.close()


def fill(index: SearchedIndex, number: int, count: int, at: float) -> None:
    rows = [list(row(number * 10_000 + each, timestamp=at, user=os.urandom(20).hex())) for each in range(count)]
    assert index.commit(RecordBatch("s", 1, number, 1, rows)) == number


def days(index: SearchedIndex) -> list[int]:
    """Which of the five days are found."""
    page = index.find(QueryLogs(0.0, NOON * 2, 1000, 0, None, None, None))
    return sorted({int((each["timestamp"] - NOON) // DAY) for each in page.rows})


def names(index: SearchedIndex, end: str) -> int:
    return len([file for file in index.path.parent.iterdir() if file.name.endswith(end)])


def test_days_that_are_too_old_are_deleted_and_it_is_logged(
    index: SearchedIndex, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    retain(index, 3, 0, clock)
    assert days(index) == [1, 2, 3, 4]
    assert names(index, ".jsonl") == 1
    assert "older than 3 days" in caplog.text
    clock.now += 100 * DAY
    retain(index, 3, 0, clock)
    assert days(index) == [4]  # the file that is written stays, whatever the clock says
    assert names(index, ".jsonl") == 0


def test_a_clock_of_before_all_days_deletes_nothing(index: SearchedIndex) -> None:
    retain(index, 3650, 0, lambda: 0.0)
    assert days(index) == [0, 1, 2, 3, 4]


def test_the_oldest_days_are_deleted_until_the_rest_fits(
    index: SearchedIndex, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kept = [file for file in index.path.parent.iterdir() if not file.name.endswith("-shm")]
    sizes = {file.name: file.stat().st_size for file in kept}
    retain(index, 30, sum(sizes.values()), clock)
    assert days(index) == [0, 1, 2, 3, 4]
    retain(index, 30, sum(sizes.values()) - sizes["2027-01-15.sqlite"] - 1000, clock)
    assert days(index) == [1, 2, 3, 4]
    retain(index, 30, 1, clock)
    assert days(index) == [4]
    assert "more than 1 bytes" in caplog.text


def test_when_today_alone_is_too_large_its_oldest_blocks_go_and_their_room_is_used_again(
    index: SearchedIndex, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    number = 5
    for _round in range(4):
        for _ in range(8):
            number += 1
            fill(index, number, 1000, clock.now)
        retain(index, 30, 300_000, clock)
    left = index.find(QueryLogs(0.0, NOON * 2, 1, 0, None, None, None))
    assert left.rows[0]["target_url"] == f"host:{number * 10_000 + 999}"
    assert 2_000 < left.total < 16_000
    assert index.path.stat().st_size < 2_000_000
    assert "oldest access records of today: more than 300000 bytes" in caplog.text
