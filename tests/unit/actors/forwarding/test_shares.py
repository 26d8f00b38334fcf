"""Shares of a bandwidth: together they are the whole, and the hungry get what the others leave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.limits.shared_bandwidth import (
    CORRECTION_MIN,
    FLOOR_MAX,
    Demand,
    budget,
    first_share,
    floor,
    share,
    share_alone,
)

PERIOD = 0.1
RATES = st.integers(100, 1_000_000_000)
DEMANDS = st.lists(st.tuples(st.integers(0, 200_000_000), st.integers(0, 50)), min_size=1, max_size=64)


def divide(whole: float, demands: list[Demand], silent: int = 0) -> list[float]:
    """What each of them takes by itself, and some others that say nothing."""
    return [
        share(whole, each, demands[:index] + demands[index + 1 :], len(demands) + silent)
        for index, each in enumerate(demands)
    ]


@given(RATES, DEMANDS, st.integers(0, 10))
def test_together_they_are_the_whole(rate: int, demands: list[Demand], silent: int) -> None:
    whole = rate * PERIOD
    shares, least = divide(whole, demands, silent), floor(whole, len(demands) + silent)
    assert sum(shares) + silent * least == pytest.approx(whole)
    assert min(shares) >= least * 0.999


@given(RATES, st.integers(0, 2_000_000_000))
def test_too_much_in_the_last_second_is_made_up_for(rate: int, lately: int) -> None:
    whole = budget(rate, PERIOD, lately)
    assert CORRECTION_MIN * rate * PERIOD <= whole <= rate * PERIOD
    if lately <= rate:
        assert whole == rate * PERIOD


@given(RATES, st.integers(2, 64))
def test_one_hungry_worker_of_many_gets_nearly_all(rate: int, workers: int) -> None:
    whole = rate * PERIOD
    shares = divide(whole, [(0, 1), *[(0, 0)] * (workers - 1)])
    assert shares[0] >= 0.9 * whole
    assert share_alone(whole, workers) == pytest.approx(shares[0])


@given(RATES, st.lists(st.floats(0.0, 1.0), min_size=2, max_size=16))
def test_equally_hungry_workers_are_even_after_three_periods(rate: int, begins: list[float]) -> None:
    """However uneven they began, when each moves all that it gets and one flow of it waits."""
    whole = rate * PERIOD
    shares = [whole * part / max(1.0, sum(begins)) for part in begins]
    for _ in range(3):
        shares = divide(whole, [(int(each), 1) for each in shares])
    assert max(shares) <= 1.1 * min(shares)


def test_flows_count_not_processes() -> None:
    shares = divide(100_000, [(50_000, 3), (50_000, 1)])
    assert shares[0] - shares[1] == pytest.approx(0.5 * (100_000 - floor(100_000, 1)))


def test_who_needs_little_gets_that_and_room_to_grow() -> None:
    little, hungry = divide(100_000, [(10_000, 0), (60_000, 1)])
    assert little == pytest.approx(15_000 + floor(100_000, 2))
    assert hungry == pytest.approx(100_000 - little)


def test_one_that_does_not_wait_takes_no_more_than_its_part() -> None:
    """It moved nearly all so far, and another comes: half each."""
    busy, fresh = divide(100_000, [(95_000, 0), (0, 1)])
    assert busy == pytest.approx(fresh)


def test_without_a_waiting_flow_the_rest_is_even() -> None:
    assert divide(1_000_000, [(0, 0)] * 4) == pytest.approx([250_000.0] * 4)


@given(RATES, st.integers(1, 64), st.integers(0, 200_000_000))
def test_those_that_were_silent_begin_within_what_is_left(rate: int, workers: int, moved: int) -> None:
    whole = rate * PERIOD
    first = first_share(whole, moved, workers)
    assert workers * first <= max(whole - moved, FLOOR_MAX * whole) * 1.001
    assert first >= floor(whole, workers)
