"""Records over time and the most frequent values: exact where there is time, estimated where there is not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.bus.messages.records import CountLogs, LogCounts, QueryLogs
from actors.bus.records import RecordBatch
from actors.logs import blocks, counting, dayfile, index
from actors.logs.counting import host_of
from actors.logs.record_schema import HOST, OUTCOME, SEPARATOR, WAY
from config.model.choices import OUTCOMES
from tests.kit.clocks import Clock
from tests.kit.records import NOON, SearchedIndex, row
from tests.kit.tables import table

FIELDS = ("proxy_id", "user", HOST, "reason")


class Log:
    """An index with small blocks."""

    def __init__(self, folder: Path) -> None:
        self.index = SearchedIndex(folder, Clock(NOON))
        self._batches = 0

    def store(self, rows: list[tuple[object, ...]], pack: bool = True) -> None:
        self._batches += 1
        self.index.commit(RecordBatch("s", 1, self._batches, 1, [list(each) for each in rows]))
        if pack:
            self.index.pack()

    def count(
        self, step: int = 600, fields: tuple[str, ...] = (), most: int = 10, start: float = NOON, **filters: Any
    ) -> LogCounts:
        plain = {"level": None, "search": None, "proxy_ids": None}
        query = QueryLogs(start, NOON + 3599, 0, 0, **{**plain, **filters})
        return self.index.count(CountLogs(query, step, fields, most))


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    for module in (dayfile, blocks, index):
        monkeypatch.setattr(module, "BLOCK_ROWS", 8)
    made = Log(tmp_path)
    yield made
    made.index.close()


def minutes(numbers: range, **fields: Any) -> list[tuple[object, ...]]:
    """One record for each minute."""
    return [row(number, timestamp=NOON + 60 * number, **fields) for number in numbers]


PACKED = pytest.mark.parametrize("pack", [False, True], ids=["fresh", "in blocks"])


@PACKED
def test_records_and_failures_are_counted_by_bucket(log: Log, pack: bool) -> None:
    log.store(minutes(range(30)), pack)
    log.store(minutes(range(25, 35), status_code=502), pack)
    found = log.count()
    assert (found.start, found.exact) == (NOON, True)
    assert found.records == (10, 10, 15, 5, 0, 0)
    assert found.failed == (0, 0, 5, 5, 0, 0)


@pytest.fixture
def refusals(log: Log, pack: bool) -> Log:
    """Two of announced tunnels and a plain one, before others."""
    refused = minutes(range(2), level="warning", reason="tls_name_denied")
    log.store([*refused, *minutes(range(2, 3), status_code=403), *minutes(range(3, 8))], pack)
    return log


@PACKED
@table(
    ("filters", "failed"),
    [
        ({}, 3),
        ({"status_class": 2}, 2),
        ({"status_code": 200, "level": "warning"}, 2),
        ({"level": "info"}, 1),
        ({"proxy_ids": ("b",)}, 0),
        ({"reason": "tls_name_denied"}, 2),
    ],
)
def test_a_refusal_of_an_announced_tunnel_has_failed(refusals: Log, filters: Any, failed: int) -> None:
    found = refusals.count(**filters)
    assert (found.failed[0], found.exact) == (failed, True)


@pytest.fixture
def two_proxies(log: Log, pack: bool) -> Log:
    log.store(minutes(range(15), proxy_id="a"), pack)
    log.store(minutes(range(15, 20), proxy_id="b"), pack)
    log.store(minutes(range(20, 30), proxy_id="b", status_code=502, user="ada"), pack)
    return log


@PACKED
@table(
    ("filters", "expected"),
    [
        ({"proxy_ids": ("a",)}, (10, 5, 0, 0, 0, 0)),
        ({"proxy_ids": ()}, (0, 0, 0, 0, 0, 0)),
        ({"status_class": 5}, (0, 0, 10, 0, 0, 0)),
        ({"status_code": 200, "proxy_ids": ("b",)}, (0, 5, 0, 0, 0, 0)),
        ({"search": "host:1"}, (1, 10, 0, 0, 0, 0)),
        ({"user": "ada"}, (0, 0, 10, 0, 0, 0)),
        ({"target": "nothing"}, (0, 0, 0, 0, 0, 0)),
        ({"start": NOON + 300}, (5, 10, 10, 0, 0, 0)),
    ],
)
def test_what_a_search_finds_is_counted(two_proxies: Log, filters: Any, expected: tuple[int, ...]) -> None:
    found = two_proxies.count(**filters)
    assert (found.records, found.exact) == (expected, True)


def test_counts_alone_suffice_without_time_to_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "READ_MAX", -1.0)
    log.store(minutes(range(8)))
    log.store(minutes(range(10, 14), status_code=403) + minutes(range(14, 18), level="warning"))
    found = log.count()
    assert (found.records, found.failed, found.exact) == ((8, 8, 0, 0, 0, 0), (0, 8, 0, 0, 0, 0), True)


def test_a_block_that_was_not_read_is_spread_over_its_time(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "READ_MAX", -1.0)
    log.store([row(number, timestamp=NOON + 300 + 100 * number) for number in range(8)])
    found = log.count()
    assert not found.exact
    assert found.records == (3, 5, 0, 0, 0, 0)


def test_the_most_frequent_values_come_with_their_bytes(log: Log) -> None:
    for number, host in enumerate(("http://b.example/x", "https://B.example:8443/y", "a.example:443", "[::1]:80")):
        log.store([row(0, target_url=host, user="ada", bytes_in=number, bytes_out=10)])
    log.store([row(0, target_url="a.example:443", reason="dns_error", status_code=502)])
    found = log.count(fields=FIELDS)
    assert found.exact
    assert found.values[HOST] == (("b.example", 2, 1, 20), ("a.example", 2, 2, 10), ("[::1]", 1, 3, 10))
    assert found.values["user"] == (("ada", 4, 6, 40),), "the empty one is left out"
    assert found.values["reason"] == (("dns_error", 1, 0, 0),)
    assert log.count(fields=FIELDS, most=1).values[HOST] == (("b.example", 2, 1, 20),)


def test_values_of_a_sample_are_scaled_to_all_and_in_their_order(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 blocks, forty are read."""
    monkeypatch.setattr(counting, "SAMPLE", 40)
    chance = random.Random(1)
    names = chance.choices("abcd", (8, 4, 2, 1), k=1600)
    log.store([row(0, timestamp=NOON + at, target_url=f"{name}:1") for at, name in enumerate(names)])
    found = log.count(fields=(HOST,))
    exact = Counter(names)
    assert not found.exact
    assert sum(found.records) == pytest.approx(1600, abs=3)
    assert [value for value, *_ in found.values[HOST]] == ["a", "b", "c", "d"]
    for value, records, *_ in found.values[HOST]:
        assert records == pytest.approx(exact[value], rel=0.35)


@table(
    ("target", "host"),
    [
        ("http://example.com/a?b", "example.com"),
        ("http://User:p@Example.com:80/", "example.com"),
        ("example.com:443", "example.com"),
        ("[2001:db8::1]:443", "[2001:db8::1]"),
        ("ftp://h", "h"),
        ("/path", ""),
        ("", ""),
        ("http://h?x=@evil", "h"),
    ],
)
def test_the_host_of_a_target(target: str, host: str) -> None:
    assert host_of(target) == host


@PACKED
def test_the_ways_of_records_are_counted_as_one_value_each(log: Log, pack: bool) -> None:
    way = {"user": "alice", "proxy_id": "prx_1", "target_url": "https://A.example/x", "pool": "eu", "parent": "up"}
    log.store([*minutes(range(3), **way), *minutes(range(3, 5), **{**way, "reason": "denied"})], pack)
    assert [(value.split(SEPARATOR), count) for value, count, *_bytes in log.count(fields=(WAY,)).values[WAY]] == [
        (["alice", "prx_1", "eu", "up", "a.example", ""], 3),
        (["alice", "prx_1", "eu", "up", "a.example", "denied"], 2),
    ]


@PACKED
def test_records_are_found_and_counted_by_what_became_of_them(log: Log, pack: bool) -> None:
    rows = [
        *minutes(range(4)),
        *minutes(range(4, 5), reason="reported:destination_denied"),
        *minutes(range(5, 6), reason="ended_by_operator"),
        *minutes(range(6, 8), status_code=403, reason="policy_denied"),
        *minutes(range(8, 9), level="warning", reason="tls_name_denied"),
        *minutes(range(9, 11), status_code=502, level="warning", reason="dns_error"),
        *minutes(range(11, 12), status_code=404),
        *minutes(range(12, 13), status_code=500, level="warning", reason="reported:destination_denied"),
    ]
    log.store(rows, pack)
    wanted = {"passed": 6, "refused": 3, "failed": 2, "origin_error": 2}
    assert tuple(wanted) == OUTCOMES
    assert {value: count for value, count, *_bytes in log.count(fields=(OUTCOME,)).values[OUTCOME]} == wanted
    assert {each: sum(log.count(outcome=each).records) for each in OUTCOMES} == wanted
    assert sum(log.count(outcome="refused", status_class=2).records) == 1
