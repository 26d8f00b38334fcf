"""Histograms of latency: merged first, read after."""

from __future__ import annotations

import random

import pytest

from actors.histogram import BOUNDS, BUCKETS, bucket_of, cumulative, percentile, sparse


def histogram(*latencies: float) -> dict[int, int]:
    counts = [0] * BUCKETS
    for each in latencies:
        counts[bucket_of(each)] += 1
    return dict(sparse(counts))


def test_a_bound_belongs_to_its_own_bucket_and_all_lengths_have_one() -> None:
    assert [bucket_of(bound) for bound in BOUNDS] == list(range(len(BOUNDS)))
    assert (bucket_of(0.0), bucket_of(1e9)) == (0, BUCKETS - 1)


def test_a_percentile_is_that_of_the_values_within_the_width_of_a_bucket() -> None:
    values = [random.Random(7).lognormvariate(-4, 1) for _ in range(5_000)]
    merged = histogram(*values)
    for percent in (50, 95, 99):
        exact = sorted(values)[int(len(values) * percent / 100)]
        assert percentile(merged, percent) == pytest.approx(exact, rel=0.2)


def test_the_percentile_of_a_merged_histogram_is_not_the_mean_of_percentiles() -> None:
    fast, slow = histogram(*[0.001] * 990), histogram(*[1.0] * 10)
    merged = {**fast, **slow}
    found = percentile(merged, 95)
    assert found is not None
    assert found < 0.0011, "the mean of both would be half a second"


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile({}, 99) is None


def test_cumulative_counts_never_fall_and_end_with_all() -> None:
    counts = cumulative(histogram(0.0005, 0.003, 0.003, 5.0), range(BUCKETS))
    assert counts == sorted(counts)
    assert counts[-1] == 4
