"""The log index: searches, days, levels, positions of senders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.bus.messages.records import QueryLogs
from actors.bus.records import RecordBatch
from tests.kit.clocks import Clock
from tests.kit.records import NOON, SearchedIndex, row
from tests.kit.tables import table

DAY = 86_400.0


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
def index(tmp_path: Path, clock: Clock) -> Iterator[SearchedIndex]:
    made = SearchedIndex(tmp_path / "logs", clock)
    yield made
    made.close()


def store(index: SearchedIndex, number: int, *rows: tuple[object, ...]) -> int:
    return index.commit(RecordBatch("s", 1, number, 1, [list(each) for each in rows]))


def find(index: SearchedIndex, **query: object) -> list[str]:
    every = {"start": 0.0, "end": NOON * 2, "limit": 100, "offset": 0, "level": None, "search": None, "proxy_ids": None}
    return [str(each["target_url"]) for each in index.find(QueryLogs(**{**every, **query})).rows]  # type: ignore[arg-type]


def test_newest_first_with_limit_and_offset_and_the_total_of_all(index: SearchedIndex) -> None:
    store(index, 1, *(row(number, timestamp=NOON + number) for number in range(5)))
    assert find(index, limit=2) == ["host:4", "host:3"]
    assert find(index, limit=2, offset=3) == ["host:1", "host:0"]
    assert index.find(QueryLogs(0.0, NOON * 2, 2, 3, None, None, None)).total == 5


def test_limits_and_offsets_reach_over_days(index: SearchedIndex, clock: Clock) -> None:
    for day in range(3):
        clock.now = NOON + day * DAY
        store(index, day + 1, *(row(day * 10 + number, timestamp=clock.now + number) for number in range(3)))
    newest_first = ["host:22", "host:21", "host:20", "host:12", "host:11", "host:10", "host:2", "host:1", "host:0"]
    for offset in range(9):
        assert find(index, offset=offset, limit=4) == newest_first[offset : offset + 4]
    assert find(index, start=NOON + DAY, end=NOON + DAY + 1) == ["host:11", "host:10"]


def test_a_record_that_arrived_a_day_late_is_found_by_its_own_time(index: SearchedIndex, clock: Clock) -> None:
    clock.now = NOON + 2 * DAY
    store(index, 1, row(1, timestamp=NOON))
    assert find(index, start=NOON - 1, end=NOON + 1) == ["host:1"]


@table(
    ("query", "found"),
    [
        ({"level": "error"}, ["b.example:2"]),
        ({"level": "info"}, ["a.example:1"]),
        ({"proxy_ids": ("two",)}, ["b.example:2"]),
        ({"proxy_ids": ("one", "two")}, ["b.example:2", "a.example:1"]),
        ({"proxy_ids": ()}, []),
        ({"search": "example"}, ["b.example:2", "a.example:1"]),
        ({"search": "b.ex"}, ["b.example:2"]),
        ({"search": "example two"}, ["b.example:2"]),
        ({"search": "EXAMPLE 10.0.0.1"}, ["a.example:1"]),
        ({"search": "%"}, []),
        ({"search": "a_example"}, []),
        ({"search": "' OR 1=1 --"}, []),
    ],
)
def test_filters(index: SearchedIndex, query: dict[str, object], found: list[str]) -> None:
    store(
        index,
        1,
        row(1, target_url="a.example:1", proxy_id="one", client_ip="10.0.0.1"),
        row(2, target_url="b.example:2", proxy_id="two", client_ip="10.0.0.2", level="error", timestamp=NOON + 1),
    )
    assert find(index, **query) == found


def test_a_batch_that_comes_again_or_skips_is_not_stored(index: SearchedIndex) -> None:
    assert store(index, 1, row(1)) == 1
    assert store(index, 1, row(1)) == 1
    assert store(index, 3, row(3)) == 1
    assert store(index, 2, row(2)) == 2
    assert sorted(find(index)) == ["host:1", "host:2"]


def test_positions_survive_a_restart_and_a_change_of_day(index: SearchedIndex, tmp_path: Path, clock: Clock) -> None:
    store(index, 1, row(1))
    clock.now += DAY
    index.close()
    again = SearchedIndex(tmp_path / "logs", clock)
    assert store(again, 1, row(1)) == 1
    assert store(again, 2, row(2)) == 2
    assert sorted(find(again)) == ["host:1", "host:2"]
    again.close()


def test_what_is_no_record_is_left_out_and_its_batch_is_acknowledged(index: SearchedIndex) -> None:
    odd = [row(2, target_url={"no": "text"}), row(3, status_code="200"), row(4)[:-1], "no row"]
    assert index.commit(RecordBatch("s", 1, 1, 1, [list(row(1)), *odd])) == 1  # type: ignore[list-item]
    assert find(index) == ["host:1"]


def test_control_characters_of_texts_are_escaped(index: SearchedIndex) -> None:
    store(index, 1, row(1, target_url="a\nb\x1b[2J\u202e", user="\x9b31m"))
    (found,) = index.find(QueryLogs(0, NOON + DAY, 10, 0, None, None, None)).rows
    assert (found["target_url"], found["user"]) == ("a\\nb\\x1b[2J\\u202e", "\\x9b31m")


def test_numbers_beyond_64_bits_become_the_nearest(index: SearchedIndex) -> None:
    store(index, 1, row(1, bytes_in=2**64 - 1, bytes_out=float("inf"), duration=float("nan")))
    (found,) = index.find(QueryLogs(0, NOON + DAY, 10, 0, None, None, None)).rows
    assert (found["bytes_in"], found["bytes_out"], found["duration"]) == (2**63 - 1, 2**63 - 1, 0)


def test_senders_that_were_silent_for_the_longest_are_forgotten(
    index: SearchedIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.logs.index.SENDERS_MAX", 2)
    numbers: dict[int, int] = {}
    for instance in (1, 2, 1, 3):
        numbers[instance] = numbers.get(instance, 0) + 1
        index.commit(RecordBatch("forwarding.one", instance, numbers[instance], 1, []))
    assert list(index._positions) == [("forwarding.one", 1), ("forwarding.one", 3)]
