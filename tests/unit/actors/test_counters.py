"""The rows of the counters: every surface follows them, and the files beside the product name only existing ones."""

from __future__ import annotations

import runpy
from pathlib import Path

from actors.bus.messages.metrics import ProxyStats, Realtime
from actors.counters import COUNTERS, LABELLED, NAMES, PASSIVE, ZEROS
from actors.metrics.catalogue import NAMES as SERIES
from actors.metrics.increments import FIELDS
from actors.metrics.live_feed import metrics_payload
from actors.metrics.series_writer import LiveRates
from actors.metrics.totals import CounterTotals, ProcessCounters
from tests.kit.folders import ROOT
from tests.kit.standin_actors import counters, stats_of


def test_no_two_counters_have_the_same_name_on_a_surface() -> None:
    for surface in ("name", "prometheus", "otlp", "series", "live", "view", "stored"):
        taken = [getattr(row, surface) for row in COUNTERS if getattr(row, surface)]
        taken += [row.stored for row in LABELLED] if surface == "stored" else []
        assert len(taken) == len(set(taken)), surface


def test_what_has_a_series_is_kept_in_buckets() -> None:
    assert {row.name for row in COUNTERS if row.series} <= set(FIELDS)
    assert {row.series for row in COUNTERS if row.series} <= set(SERIES)


def test_every_counter_outlives_the_collector(tmp_path: Path) -> None:
    counted = {name: place + 1 for place, name in enumerate(NAMES) if name != "requests"}
    totals = CounterTotals(tmp_path)
    totals.update(counters("a", 1, 1, **counted))
    totals.save()
    totals.close()
    again = CounterTotals(tmp_path)
    assert again.stats()["a"].values == tuple(range(1, len(NAMES) + 1))
    again.close()


def test_counts_by_label_outlive_the_collector_and_are_summed_over_workers(tmp_path: Path) -> None:
    one, two = {row.field: {"a": 2, "b": 1} for row in LABELLED}, {row.field: {"a": 5} for row in LABELLED}
    totals = CounterTotals(tmp_path)
    totals.update(counters("a", 1, 1, **one))
    totals.update(counters("a", 2, 1, **two))
    totals.save()
    totals.close()
    again = CounterTotals(tmp_path)
    stats = again.stats(detailed=True)["a"]
    assert [getattr(stats, row.field) for row in LABELLED] == [{"a": 7, "b": 1} for _row in LABELLED]
    again.close()


def test_a_process_of_another_release_may_count_less_or_more() -> None:
    counted = counters("a", 1, 3)
    counted.values.pop("errors")
    counted.values["unknown"] = 7
    assert ProcessCounters.of(counted).values == [3, *ZEROS[1:]]


def test_what_grows_without_traffic_is_no_change() -> None:
    before = counters("a", 1, 3)
    assert counters("a", 1, 4).changed_since(before)
    assert not counters("a", 1, 3, **dict.fromkeys(PASSIVE, 1.0)).changed_since(before)


def test_totals_are_read_by_name() -> None:
    assert (stats_of(errors=4)["errors"], ProxyStats()["errors"]) == (4, 0)


def test_the_example_of_a_subscriber_displays_fields_of_the_live_feed() -> None:
    live = {**LiveRates().metrics(), "active_connections": 0.0, "memory_usage": 0.0}
    fields = metrics_payload(Realtime(0.0, live), ProxyStats()).keys()
    columns = runpy.run_path(str(ROOT / "scripts" / "watch_metrics.py"))["COLUMNS"]
    assert {field for _title, field in columns} <= fields
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert [field for field in fields if f"`{field}`" not in text] == []
