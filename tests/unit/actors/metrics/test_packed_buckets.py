"""Packed buckets: the sum over many proxies is the same as that of their rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.histogram import bucket_of
from actors.metrics.increments import FIELDS, FRACTIONS, PLACE, Increments
from actors.metrics.packed_buckets import PROXIES_MIN, pack
from actors.metrics.series import Bucket, Series
from actors.sqlite import open_database

START = 1_767_225_600
STEP = 300
BUCKETS = 12
IDS = tuple(f"prx_{number:016x}" for number in range(40))


class Book:
    """Series in a file of their own, saved second by second as the collector does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.open()

    def open(self) -> None:
        self.database = open_database(self._folder / "series.sqlite", "")
        self.series = Series(self.database)

    def save(self, now: float, times: int = 1) -> None:
        for _ in range(times):
            self.database.execute("BEGIN")
            self.series.store(now)
            self.database.execute("COMMIT")
            self.series.stored(now)

    def packed(self) -> list[int]:
        """The starts of the five-minute buckets that are packed."""
        return [t for (t,) in self.database.execute("SELECT t FROM sheets WHERE step = ? ORDER BY t", (STEP,))]

    def read(self, ids: tuple[str, ...] = IDS) -> list[Bucket]:
        return self.series.read(STEP, START, START + BUCKETS * STEP, ids, latency=True)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    made = Book(tmp_path)
    yield made
    made.database.close()


def some_increments(rng: random.Random) -> Increments:
    latency = {bucket_of(rng.uniform(0.001, 2.0)): rng.randrange(1, 3_000) for _ in range(8)}
    return Increments(
        [rng.uniform(0, 90.0) if name in FRACTIONS else rng.randrange(10_000) for name in FIELDS], latency
    )


def filled(book: Book) -> dict[int, dict[str, Increments]]:
    """Every proxy counts something in every bucket but the last; returns what."""
    rng, known = random.Random(7), {}
    for number in range(BUCKETS - 1):
        t = START + number * STEP
        known[t] = {proxy_id: some_increments(rng) for proxy_id in IDS}
        for proxy_id, counted in known[t].items():
            book.series.add(proxy_id, counted, t)
    book.save(START + BUCKETS * STEP, times=BUCKETS)
    return known


def added(known: dict[str, Increments], ids: tuple[str, ...]) -> Increments:
    total = Increments()
    for each in ids:
        total.add(known[each])
    return total


def same(found: Increments | None, expected: Increments) -> None:
    assert found is not None
    assert found.values == pytest.approx(expected.values, rel=1e-6)
    assert found.latency == expected.latency


@pytest.mark.parametrize("count", [2, PROXIES_MIN, PROXIES_MIN + 1, 36, len(IDS)])
def test_a_sum_over_proxies_is_the_sum_of_what_each_has_counted(book: Book, count: int) -> None:
    known = filled(book)
    assert book.packed() == sorted(known)
    for bucket in book.read(IDS[:count])[:-1]:
        same(bucket.increments, added(known[bucket.start], IDS[:count]))
    assert book.read()[-1].increments is None


def test_what_is_counted_late_is_in_the_sum_at_once_and_after_the_copy_is_made_again(book: Book) -> None:
    known = filled(book)
    late, t = some_increments(random.Random(8)), START + 3 * STEP
    known[t][IDS[0]].add(late)
    book.series.add(IDS[0], late, t + 1)
    book.save(t + STEP - 1)
    assert t not in book.packed()
    same(book.read()[3].increments, added(known[t], IDS))
    book.save(START + BUCKETS * STEP, times=BUCKETS)
    assert book.packed() == sorted(known)
    same(book.read()[3].increments, added(known[t], IDS))


def test_buckets_that_are_not_packed_after_a_restart_are_packed_and_no_sum_waits_for_them(book: Book) -> None:
    known = filled(book)
    book.database.execute("DELETE FROM sheets")
    book.database.execute("DELETE FROM sealed")
    book.database.close()
    book.open()
    book.save(START + BUCKETS * STEP)
    assert 0 < len(book.packed()) < len(known)
    for bucket in book.read()[:-1]:
        same(bucket.increments, added(known[bucket.start], IDS))
    book.save(START + BUCKETS * STEP, times=BUCKETS)
    assert book.packed() == sorted(known)


def test_a_bucket_is_packed_when_it_is_over_and_with_few_proxies_never(book: Book) -> None:
    rng = random.Random(9)
    for proxy_id in IDS:
        book.series.add(proxy_id, some_increments(rng), START)
    for proxy_id in IDS[: PROXIES_MIN - 1]:
        book.series.add(proxy_id, some_increments(rng), START + STEP)
    book.save(START + STEP - 1, times=2)
    assert book.packed() == []
    book.save(START + 10 * STEP, times=2)
    assert book.packed() == [START]


def test_a_copy_that_was_not_committed_is_made_again(book: Book) -> None:
    rng = random.Random(10)
    for proxy_id in IDS:
        book.series.add(proxy_id, some_increments(rng), START)
    book.database.execute("BEGIN")
    book.series.store(START + 2 * STEP)
    book.database.execute("ROLLBACK")
    book.series.failed()
    assert book.packed() == []
    book.save(START + 2 * STEP)
    assert book.packed() == [START]


@pytest.mark.parametrize("most", [1, 2**16 - 1, 2**16, 2**32])
def test_lanes_are_as_wide_as_the_sum_needs(book: Book, most: int) -> None:
    each = Increments(latency={5: most})
    each.values[PLACE["bytes_in"]], each.values[PLACE["response_seconds"]] = 2**40, 0.25
    last = Increments(latency={90: 1})
    packed = pack([(proxy_id, each) for proxy_id in IDS] + [("prx_last", last)])
    book.database.execute("INSERT INTO sheets VALUES (?, ?, ?, ?, ?, ?)", (STEP, START, *packed))
    found = book.read((*IDS, "prx_last"))[0].increments
    assert found is not None
    assert found.latency == {5: most * len(IDS), 90: 1}
    assert (found["bytes_in"], found["response_seconds"]) == (2**40 * len(IDS), 0.25 * len(IDS))


def test_what_is_too_old_goes(book: Book) -> None:
    filled(book)
    book.series.forget_old(START + 9 * 86_400.0)
    assert book.packed() == []
    known = sum(bucket.increments is not None for bucket in book.read())
    assert known == BUCKETS - 1, "the rows are there, and as good"
    book.save(START + 9 * 86_400.0, times=2)
    assert book.packed() == [], "they are not packed again"
