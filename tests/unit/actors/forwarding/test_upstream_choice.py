"""Which upstream is chosen, and what makes one be left alone: with a clock of the test's own."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.upstreams.balancing import BalancingPolicy, _score_of, new_policy
from actors.pools.upstream import BACK_OFF_MAX
from tests.kit.tables import table
from tests.kit.upstreams import three, up
from tests.kit.upstreams import upstream_entry as spec


def chosen(choice: BalancingPolicy, times: int, key: str = "k") -> list[int]:
    found = [choice.choose(key, up) for _ in range(times)]
    return [-1 if upstream is None else upstream.index for upstream in found]


@pytest.mark.parametrize("policy", ["failover", "round_robin", "least_connections", "sticky"])
def test_with_none_usable_there_is_none_and_afterwards_there_is(policy: str) -> None:
    upstreams = three()
    choice = new_policy(policy, upstreams)
    assert choice.choose("k", lambda _upstream: False) is None
    assert choice.choose("k", lambda upstream: upstream.index == 1) is upstreams[1]


def test_failover_takes_the_first_that_is_up() -> None:
    upstreams = three()
    choice = new_policy("failover", upstreams)
    assert chosen(choice, 2) == [0, 0]
    upstreams[0].failed(0.0, "")
    assert chosen(choice, 2) == [1, 1]
    upstreams[0].succeeded(1.0)
    assert chosen(choice, 1) == [0]


def test_round_robin_is_in_proportion_to_the_weights_and_spread_out() -> None:
    choice = new_policy("round_robin", three(5, 1, 2))
    turns = chosen(choice, 80)
    assert Counter(turns) == {0: 50, 1: 10, 2: 20}
    assert all(Counter(turns[start : start + 8])[0] in (4, 5, 6) for start in range(72))


def test_round_robin_owes_nothing_to_an_upstream_that_was_down() -> None:
    upstreams = three()
    choice = new_policy("round_robin", upstreams)
    upstreams[2].failed(0.0, "")
    chosen(choice, 300)
    upstreams[2].succeeded(1.0)
    assert Counter(chosen(choice, 9))[2] in (3, 4)


def test_least_connections_counts_in_proportion_to_the_weights() -> None:
    upstreams = three(1, 2, 1)
    choice = new_policy("least_connections", upstreams)
    for _ in range(40):
        found = choice.choose("k", up)
        assert found is not None
        found.acquire()
    assert [upstream.active for upstream in upstreams] == [10, 20, 10]
    upstreams[2].release()
    assert chosen(choice, 1) == [2]


def test_sticky_stays_leaves_with_a_failure_and_comes_back() -> None:
    upstreams = three()
    choice = new_policy("sticky", upstreams)
    first = {str(key): chosen(choice, 1, str(key))[0] for key in range(300)}
    assert all(Counter(first.values())[index] > 60 for index in range(3))
    upstreams[0].failed(0.0, "")
    second = {key: chosen(choice, 1, key)[0] for key in first}
    assert all(second[key] == index for key, index in first.items() if index != 0)
    assert {second[key] for key, index in first.items() if index == 0} == {1, 2}
    upstreams[0].succeeded(1.0)
    assert {key: chosen(choice, 1, key)[0] for key in first} == first


def test_sticky_moves_only_the_keys_of_an_upstream_that_was_taken_out_of_the_list() -> None:
    upstreams = three()
    before = new_policy("sticky", upstreams)
    after = new_policy("sticky", upstreams[:2])
    for key in map(str, range(300)):
        index = chosen(before, 1, key)[0]
        assert index == 2 or chosen(after, 1, key)[0] == index


@table("number", [0, 1, 2**63, 2**64 - 2**10, 2**64 - 1])
def test_every_digest_has_a_score(number: int) -> None:
    assert 0 < _score_of(number, 1) < float("inf")


def test_sticky_keeps_to_the_weights() -> None:
    choice = new_policy("sticky", three(8, 1, 1))
    counts = Counter(chosen(choice, 1, str(key))[0] for key in range(2000))
    assert 1450 < counts[0] < 1750


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.sampled_from(["round_robin", "sticky"]))
def test_every_choice_is_one_of_the_usable(weights: list[int], policy: str) -> None:
    upstreams = three(*weights)
    choice = new_policy(policy, upstreams)
    usable = set(upstreams[::2])
    for key in range(20):
        assert choice.choose(str(key), lambda upstream: upstream in usable) in usable


# --- up and down ---


def test_an_upstream_that_fails_is_left_alone_for_twice_as_long_each_time() -> None:
    upstream = three()[0]
    now, waits = 0.0, []
    for _ in range(9):
        upstream.failed(now, "refused")
        assert not upstream.eligible(now)
        waits.append(upstream.retry_at - now)
        now = upstream.retry_at
        assert upstream.eligible(now)
    assert waits == [1, 2, 4, 8, 16, 32, BACK_OFF_MAX, BACK_OFF_MAX, BACK_OFF_MAX]
    assert upstream.succeeded(now)
    upstream.failed(now, "refused")
    assert upstream.retry_at == now + 1


def test_when_its_back_off_ends_one_trial_is_let_through_at_a_time() -> None:
    upstream = three()[0]
    upstream.failed(0.0, "refused")
    upstream.begin_trial(1.0, 30.0)
    assert not upstream.eligible(2.0)
    assert upstream.eligible(31.0)


def test_failures_at_the_same_time_are_one_failure() -> None:
    upstream = three()[0]
    assert upstream.failed(0.0, "refused")
    assert not any(upstream.failed(0.1, "refused") for _ in range(20))
    assert upstream.retry_at == 1.0
    assert upstream.failures == 21


def test_doubts_of_three_targets_in_a_row_are_its_fault_and_a_success_between_them_ends_them() -> None:
    upstream = three()[0]
    assert not any(upstream.suspect(0.0, "503", target) for target in (1.0, 1.0, 2.0, 1.0))
    upstream.succeeded(0.0)
    assert [upstream.suspect(0.0, "503", target) for target in (1.0, 2.0, 2.0, 3.0)] == [False, False, False, True]
    upstream.failed(0.0, "503")
    assert upstream.suspect(1.0, "503", 1.0), "its trial has failed"


def test_a_changed_password_deserves_a_new_trial_at_once() -> None:
    upstream = three()[0]
    upstream.failed(0.0, "407")
    upstream.reconfigure(upstream.spec, 0)
    assert not upstream.eligible(0.1)
    upstream.reconfigure(spec(1, username="u", password="new"), 0)
    assert upstream.eligible(0.1)
