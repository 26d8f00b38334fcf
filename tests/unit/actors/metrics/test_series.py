"""Series: what is counted is in the buckets of its time, whatever process restarts and whatever the clock does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.bus.messages.metrics import MetricSeries, QueryMetricSeries
from actors.histogram import bucket_of
from actors.metrics import catalogue
from actors.metrics.catalogue import INTERVALS, NAMES, read_in_batches, values
from actors.metrics.series import DAY, RETENTION, Bucket
from actors.metrics.series_writer import SeriesWriter
from actors.metrics.system import CPUS, MEMORY
from actors.metrics.totals import CounterTotals
from tests.kit.standin_actors import counters

START = 1_767_225_600.0
"""Midnight."""
HOUR = 3600


class Clocks:
    """The monotonic clock and the wall clock, which can be set."""

    def __init__(self) -> None:
        self.now = 500.0
        self.offset = START - self.now

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + self.offset


class Collector:
    """Totals and series as the collector's process has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clocks = Clocks()
        self.start()

    def start(self) -> None:
        self.totals = CounterTotals(self.folder, self.clocks.monotonic)
        self.writer = SeriesWriter(self.totals, self.clocks.monotonic, self.clocks.wall)

    def die(self) -> None:
        """At once: what isn't saved is lost."""
        self.totals.close()

    def instance(self) -> int:
        """Of a process that starts now."""
        return int(self.clocks.wall() * 1e6)

    def seconds(self, count: int, step: float = 1.0, cpu: float = 10.0) -> None:
        for _ in range(count):
            self.clocks.now += step
            self.writer.tick(cpu, 50.0)
            self.totals.save()

    def read(
        self, name: str, interval: str, start: float, end: float, proxy_id: str | None = None, of_one: bool = False
    ) -> list[float]:
        step = INTERVALS[interval]
        ids = None if proxy_id is None else (proxy_id,)
        self.writer.request_store()
        self.totals.save()
        buckets = self.writer.series.read(step, int(start), int(end), ids, latency=True)
        return list(values(name, buckets, step, self.clocks.wall(), of_one))  # type: ignore[arg-type]


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    made = Collector(tmp_path / "metrics")
    yield made
    made.die()


def test_what_is_counted_is_in_the_buckets_of_all_intervals_by_proxy_and_in_total(collector: Collector) -> None:
    a, b = collector.instance(), collector.instance() + 1
    for second in range(120):
        collector.writer.update(counters("a", a, 2 * second + 2, bytes_out=1000 * (second + 1)))
        if second < 60:
            collector.writer.update(counters("b", b, second + 1, errors=second + 1))
        collector.seconds(1)
    assert collector.read("requests_total", "1m", START, START + 120) == [180, 120]
    assert collector.read("requests_total", "1m", START, START + 120, "b") == [60, 0]
    assert collector.read("requests_total", "5m", START, START + 300) == [300]
    assert collector.read("requests_total", "1d", START, START + DAY) == [300]
    assert collector.read("errors_total", "1h", START, START + HOUR) == [60]


def test_rates_are_per_second_of_the_bucket_and_of_the_part_that_is_over(collector: Collector) -> None:
    process = collector.instance()
    for second in range(90):
        collector.writer.update(counters("a", process, 10 * (second + 1), bytes_in=100 * (second + 1)))
        collector.seconds(1)
    first, second_minute = collector.read("requests_per_second", "1m", START, START + 90)
    assert first == pytest.approx(10, rel=0.05)
    assert second_minute == pytest.approx(10, rel=0.1)
    assert collector.read("bandwidth_in", "1m", START, START + 60) == [pytest.approx(100, rel=0.05)]


def test_a_gap_in_a_rate_is_0_and_in_a_mean_it_is_absent(collector: Collector) -> None:
    found = {name: collector.read(name, "5m", START - 300, START)[0] for name in NAMES}
    means = {name for name, value in found.items() if value is None}
    assert means == {
        "active_connections",
        "response_time_avg",
        "response_time_p50",
        "response_time_p95",
        "response_time_p99",
        "cpu_usage",
        "memory_usage",
    }
    assert all(value == 0 for name, value in found.items() if name not in means)


def test_percentiles_of_an_hour_come_from_the_histogram_of_the_hour(collector: Collector) -> None:
    fast, slow = bucket_of(0.001), bucket_of(1.0)
    process = collector.instance()
    collector.writer.update(counters("a", process, 990, response_seconds=0.99, latency=((fast, 990),)))
    collector.seconds(600, step=1.0)
    collector.writer.update(counters("a", process, 1000, response_seconds=10.99, latency=((fast, 990), (slow, 10))))
    collector.seconds(1)
    assert collector.read("response_time_p99", "1h", START, START + HOUR)[0] < 1.1
    assert collector.read("response_time_p99", "5m", START + 600, START + 900)[0] > 800
    assert collector.read("response_time_avg", "1h", START, START + HOUR) == [pytest.approx(10.99)]


def test_active_connections_are_the_mean_of_the_seconds(collector: Collector) -> None:
    process = collector.instance()
    for second in range(60):
        active = 4 if second < 30 else 0
        collector.writer.update(counters("a", process, 1, active_connections=active))
        collector.seconds(1)
    assert collector.read("active_connections", "5m", START, START + 300) == [pytest.approx(2.0)]
    assert collector.read("cpu_usage", "5m", START, START + 300) == [pytest.approx(10.0)]


def test_processors_and_memory_of_one_proxy_are_those_of_its_process(collector: Collector) -> None:
    process = collector.instance()
    for second in range(60):
        reported = {"cpu_seconds": 0.25 * (second + 1), "resident": MEMORY // 100}
        collector.writer.update(counters("a", process, second, **reported))
        collector.seconds(1)
    assert collector.read("cpu_usage", "1m", START, START + 60, "a", True) == [pytest.approx(25 / CPUS, rel=0.05)]
    assert collector.read("memory_usage", "5m", START, START + 300, "a", True) == [pytest.approx(1.0, rel=0.01)]
    assert collector.read("cpu_usage", "5m", START, START + 300, "a") == [pytest.approx(10.0)], "the machine's"
    assert collector.writer._live.metrics(("a",))["cpu_usage"] == pytest.approx(25 / CPUS)
    assert collector.totals.resident(("a",)) == MEMORY // 100
    assert collector.read("memory_usage", "5m", START, START + 300, "b", True) == [None]


def test_processor_time_while_the_collector_was_away_is_no_spike(collector: Collector) -> None:
    process = collector.instance()
    collector.writer.update(counters("a", process, 1, cpu_seconds=1.0))
    collector.seconds(1)
    collector.die()
    collector.clocks.now += 600
    collector.start()
    collector.writer.update(counters("a", process, 1, cpu_seconds=61.0))
    collector.seconds(1)
    found = [each for each in collector.read("cpu_usage", "1m", START, START + 720, "a", True) if each is not None]
    assert max(found) <= 100 * 0.15 / CPUS + 2


def test_a_scope_of_many_proxies_is_the_sum_of_what_each_has_counted(collector: Collector) -> None:
    counted = {f"p{number}": number + 1 for number in range(40)}
    for proxy_id, requests in counted.items():
        latency = ((bucket_of(0.1 if requests < 40 else 1.0), requests),)
        collector.writer.update(counters(proxy_id, collector.instance(), requests, latency=latency))
    collector.seconds(1)
    collector.writer.request_store()
    collector.totals.save()
    scope = ("p1", "p20", "p39")
    (bucket,) = collector.writer.series.read(300, int(START), int(START) + 300, scope, latency=True)
    assert bucket.increments is not None
    assert bucket.increments["requests"] == 2 + 21 + 40
    assert bucket.increments.latency == {bucket_of(0.1): 2 + 21, bucket_of(1.0): 40}


def test_a_collector_that_dies_loses_nothing_that_it_saved_and_doubles_nothing(collector: Collector) -> None:
    process = collector.instance()
    for count in range(1, 31):
        collector.writer.update(counters("a", process, count))
        collector.seconds(1)
        if count % 7 == 0:
            collector.die()
            collector.start()
    assert collector.totals.stats(("a",))["a"]["requests"] == 30
    assert sum(collector.read("requests_total", "1m", START, START + 60)) == 30
    assert sum(collector.read("requests_total", "1m", START, START + 60, "a")) == 30


def test_what_was_counted_while_the_collector_was_away_is_spread_and_is_no_spike(collector: Collector) -> None:
    process = collector.instance()
    for count in range(60):
        collector.writer.update(counters("a", process, 10 * (count + 1)))
        collector.seconds(1)
    collector.die()
    collector.clocks.now += 600
    collector.start()
    histogram = ((bucket_of(0.001), 6_000),)
    collector.writer.update(counters("a", process, 600 + 6_000, latency=histogram))
    collector.writer.update(counters("b", process + 1, 6_000))
    collector.seconds(1)
    series = collector.read("requests_total", "1m", START, START + 720, "a")
    assert sum(series) == 6_600
    assert max(series) <= 700
    assert sum(collector.read("requests_total", "1m", START, START + 720, "b")) == 6_000
    assert collector.writer._live.metrics()["requests_per_second"] == 0


def test_a_report_is_live_before_the_next_tick(collector: Collector) -> None:
    collector.seconds(5)
    collector.clocks.now += 0.5
    collector.writer.update(counters("a", collector.instance(), 11))
    collector.writer.update(counters("b", collector.instance(), 11))
    assert collector.writer.live_metrics()["requests_per_second"] == pytest.approx(4)
    assert collector.writer.live_metrics(("a",))["requests_per_second"] == pytest.approx(2)
    assert collector.writer.live_metrics(("c",))["requests_per_second"] == 0
    collector.seconds(1, step=0.5)
    assert collector.writer.live_metrics(("a",))["requests_per_second"] == pytest.approx(11 / 5)


def test_what_a_process_counted_in_the_seconds_before_the_collector_came_is_live(collector: Collector) -> None:
    process = collector.instance()
    collector.die()
    collector.clocks.now += 2
    collector.start()
    collector.writer.update(counters("a", process, 10))
    collector.seconds(1)
    assert collector.writer.live_metrics()["requests_per_second"] == pytest.approx(10)
    assert sum(collector.read("requests_total", "1m", START, START + 60)) == 10


def test_a_new_process_of_a_proxy_makes_no_step_and_no_spike(collector: Collector) -> None:
    old = collector.instance()
    for count in range(30):
        collector.writer.update(counters("a", old, 10 * (count + 1)))
        collector.seconds(1)
    new = collector.instance()
    for count in range(30):
        collector.writer.update(counters("a", new, 10 * (count + 1)))
        collector.seconds(1)
    assert collector.read("requests_total", "1m", START, START + 60) == [600]


@pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "forward"])
def test_a_clock_that_is_set_an_hour_makes_no_spike(collector: Collector, jump: int) -> None:
    process = collector.instance()
    for second in range(2 * HOUR // 10):
        if second == HOUR // 10:
            collector.clocks.offset += jump
        collector.writer.update(counters("a", process, 100 * (second + 1)))
        collector.seconds(1, step=10.0)
    rates = collector.read("requests_per_second", "5m", START - HOUR, START + 3 * HOUR)
    assert max(rates) <= 11
    assert sum(collector.read("requests_total", "5m", START - HOUR, START + 3 * HOUR)) == 72_000


def test_a_day_at_speed_is_in_all_levels_and_what_is_old_is_deleted(collector: Collector) -> None:
    process, count = collector.instance(), 0
    for _ in range(DAY // 60):
        count += 60
        collector.writer.update(counters("a", process, count))
        collector.seconds(1, step=60.0)
    for interval in INTERVALS:
        assert sum(collector.read("requests_total", interval, START, START + 2 * DAY)) == DAY
    for step, retention in sorted(RETENTION.items()):
        collector.clocks.now = 500.0 + DAY + retention + 2 * step
        collector.seconds(1)
        left = collector.writer.series.read(step, int(START), int(START + DAY), None)
        assert not any(bucket.increments for bucket in left)
        wider = [each for each in RETENTION if each > step]
        for each in wider:
            assert total_of(collector.writer.series.read(each, int(START), int(START + DAY), None)) == DAY


def total_of(buckets: list[Bucket]) -> float:
    return sum(bucket.increments["requests"] for bucket in buckets if bucket.increments)


def test_a_long_series_is_read_in_batches_that_are_together_the_same(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = collector.instance()
    for second in range(600):
        latency = ((bucket_of(0.001 * (second + 1)), second + 1),)
        collector.writer.update(counters("a", process, second + 1, latency=latency))
        collector.seconds(1)
    collector.writer.request_store()
    collector.totals.save()
    names, now = ("requests_total", "response_time_p95"), collector.clocks.wall()
    query = QueryMetricSeries(names, int(START), int(START) + 660, 60, ("a", "b"))

    def read() -> tuple[int, MetricSeries]:
        reading, turns = read_in_batches(collector.writer.series, query, now), 0
        while True:
            try:
                next(reading)
            except StopIteration as done:
                return turns, done.value
            turns += 1

    turns, whole = read()
    assert turns == 0
    monkeypatch.setattr(catalogue, "ROWS", 4)
    assert read() == (5, whole)
    assert whole.values["requests_total"] == (60,) * 10 + (0,)


def test_a_deleted_proxy_stays_in_the_sum(collector: Collector) -> None:
    collector.writer.update(counters("a", collector.instance(), 10))
    collector.seconds(1)
    collector.totals.forget("a")
    collector.writer.forget("a")
    collector.seconds(1)
    assert collector.read("requests_total", "5m", START, START + 300) == [10]


def test_live_metrics_are_of_the_last_seconds_and_return_to_0(collector: Collector) -> None:
    process = collector.instance()
    fast = bucket_of(0.01)
    for second in range(1, 11):
        reported = {"errors": second, "response_seconds": 0.1 * second, "latency": ((fast, 10 * second),)}
        collector.writer.update(counters("a", process, 10 * second, bytes_in=50 * second, **reported))
        collector.seconds(1)
    live = collector.writer._live
    assert live.metrics()["requests_per_second"] == pytest.approx(10)
    assert live.metrics(("a",)) == live.metrics()
    assert live.metrics(("b",))["requests_per_second"] == 0
    assert live.metrics()["error_rate"] == pytest.approx(10)
    assert live.metrics()["response_time_avg"] == pytest.approx(10)
    collector.seconds(5)
    assert live.metrics()["requests_per_second"] == 0
    assert live.metrics()["error_rate"] == pytest.approx(10)
    collector.seconds(60)
    assert set(live.metrics().values()) == {0.0}


def test_what_proxies_did_in_the_last_hour_is_known_after_a_restart(collector: Collector) -> None:
    process = collector.instance()
    collector.writer.update(counters("a", process, 10, errors=1, denied=2, bytes_out=50_000))
    collector.seconds(6)
    before = collector.writer.recent.of(["a"], collector.clocks.wall())["a"]
    assert (before.rates[-1], before.requests[-1], before.failed[-1]) == (10_000, 10, 3)
    collector.die()
    collector.start()
    after = collector.writer.recent.of(["a"], collector.clocks.wall())["a"]
    assert (after.requests, after.failed) == (before.requests, before.failed)
