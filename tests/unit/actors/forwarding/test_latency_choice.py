"""The policy `latency` of pools, and the choice that `explain` shows."""

from __future__ import annotations

from collections import Counter
from time import monotonic

import pytest

from actors.forwarding.upstreams.balancing import HALVED_AFTER, new_policy
from actors.pools.upstream import Upstream
from tests.kit.upstreams import own_upstream
from tests.kit.upstreams import upstream_entry as spec


def measured(*latencies: float | None, weights: tuple[int, ...] = ()) -> list[Upstream]:
    found = []
    for index, latency in enumerate(latencies):
        upstream = own_upstream(spec(index + 1, weight=weights[index] if weights else 1), index)
        if latency is not None:
            upstream.record_latency(monotonic(), latency)
        found.append(upstream)
    return found


def times_chosen(upstreams: list[Upstream], usable: tuple[int, ...], draws: int = 3000) -> Counter[int]:
    choice = new_policy("latency", upstreams)
    found = (choice.choose("k", lambda upstream: upstream.index in usable) for _ in range(draws))
    return Counter(-1 if each is None else each.index for each in found)


def test_the_better_of_two_at_random_is_chosen_so_that_the_worst_never_is() -> None:
    counted = times_chosen(measured(0.01, 0.02, 0.03, 0.04), (0, 1, 2, 3))
    assert counted[3] == 0
    # Of the six pairs the first wins three, the second two and the third one.
    for index, share in ((0, 3 / 6), (1, 2 / 6), (2, 1 / 6)):
        assert counted[index] / 3000 == pytest.approx(share, abs=0.06)


def test_latency_counts_in_proportion_to_the_weight() -> None:
    assert times_chosen(measured(0.04, 0.02, weights=(5, 1)), (0, 1), 50) == {0: 50}
    assert times_chosen(measured(0.04, 0.02), (0, 1), 50) == {1: 50}


def test_what_nothing_is_known_of_is_tried_first() -> None:
    assert times_chosen(measured(0.001, None), (0, 1), 50) == {1: 50}


def test_one_that_was_slow_is_tried_again_when_that_was_long_ago() -> None:
    slow, fast = measured(0.3, 0.01)
    slow.record_latency(monotonic() - 4 * HALVED_AFTER, 0.3)
    assert times_chosen([slow, fast], (0, 1), 50) == {1: 50}
    slow.record_latency(monotonic() - 10 * HALVED_AFTER, 0.3)
    assert times_chosen([slow, fast], (0, 1), 50) == {0: 50}
    slow.record_latency(monotonic(), 0.3)
    assert times_chosen([slow, fast], (0, 1), 50) == {1: 50}


@pytest.mark.parametrize("usable", [(), (7,), (3, 90)])
def test_few_usable_ones_among_many_are_found(usable: tuple[int, ...]) -> None:
    counted = times_chosen(measured(*[0.01 + index / 1000 for index in range(100)]), usable, 20)
    assert counted == ({-1: 20} if not usable else {usable[0]: 20})


@pytest.mark.parametrize("policy", ["failover", "round_robin", "least_connections", "sticky"])
def test_what_is_shown_is_what_is_chosen_next_and_showing_it_changes_nothing(policy: str) -> None:
    upstreams = measured(0.01, 0.02, 0.03)
    choice = new_policy(policy, upstreams)
    for _ in range(7):
        shown = [choice.peek("k", lambda each: each.index != 1) for _ in range(3)]
        assert shown == [choice.choose("k", lambda each: each.index != 1)] * 3
    assert choice.peek("k", lambda _each: False) is None


def test_of_latency_the_best_is_shown() -> None:
    upstreams = measured(0.03, 0.01, 0.02)
    assert new_policy("latency", upstreams).peek("k", lambda _each: True) is upstreams[1]
