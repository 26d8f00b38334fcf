"""Which parent is chosen, and what makes one be left alone: with a clock of the test's own."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.upstreams.balancing import BalancingPolicy, _score_of, new_choice
from actors.forwarding.upstreams.session_username import split_session
from actors.forwarding.upstreams.upstream import BACK_OFF_MAX, DOUBTS_MAX, Parent
from tests.kit.upstreams import parent as spec


def three(*weights: int) -> list[Parent]:
    return [Parent(spec(index + 1, weight=weight), index, 0.0) for index, weight in enumerate(weights or (1, 1, 1))]


def up(parent: Parent) -> bool:
    return parent.state != "down"


def chosen(choice: BalancingPolicy, times: int, key: str = "k") -> list[int]:
    found = [choice.choose(key, up) for _ in range(times)]
    return [-1 if parent is None else parent.index for parent in found]


@pytest.mark.parametrize("policy", ["failover", "round_robin", "least_connections", "sticky"])
def test_with_none_usable_there_is_none_and_afterwards_there_is(policy: str) -> None:
    parents = three()
    choice = new_choice(policy, parents)
    assert choice.choose("k", lambda _parent: False) is None
    assert choice.choose("k", lambda parent: parent.index == 1) is parents[1]


def test_failover_takes_the_first_that_is_up() -> None:
    parents = three()
    choice = new_choice("failover", parents)
    assert chosen(choice, 2) == [0, 0]
    parents[0].failed(0.0, "")
    assert chosen(choice, 2) == [1, 1]
    parents[0].succeeded(1.0)
    assert chosen(choice, 1) == [0]


def test_round_robin_is_in_proportion_to_the_weights_and_spread_out() -> None:
    choice = new_choice("round_robin", three(5, 1, 2))
    turns = chosen(choice, 80)
    assert Counter(turns) == {0: 50, 1: 10, 2: 20}
    assert all(Counter(turns[start : start + 8])[0] in (4, 5, 6) for start in range(72))


def test_round_robin_owes_nothing_to_a_parent_that_was_down() -> None:
    parents = three()
    choice = new_choice("round_robin", parents)
    parents[2].failed(0.0, "")
    chosen(choice, 300)
    parents[2].succeeded(1.0)
    assert Counter(chosen(choice, 9))[2] in (3, 4)


def test_least_connections_counts_in_proportion_to_the_weights() -> None:
    parents = three(1, 2, 1)
    choice = new_choice("least_connections", parents)
    for _ in range(40):
        found = choice.choose("k", up)
        assert found is not None
        found.taken()
    assert [parent.active for parent in parents] == [10, 20, 10]
    parents[2].left()
    assert chosen(choice, 1) == [2]


def test_sticky_stays_leaves_with_a_failure_and_comes_back() -> None:
    parents = three()
    choice = new_choice("sticky", parents)
    first = {str(key): chosen(choice, 1, str(key))[0] for key in range(300)}
    assert all(Counter(first.values())[index] > 60 for index in range(3))
    parents[0].failed(0.0, "")
    second = {key: chosen(choice, 1, key)[0] for key in first}
    assert all(second[key] == index for key, index in first.items() if index != 0)
    assert {second[key] for key, index in first.items() if index == 0} == {1, 2}
    parents[0].succeeded(1.0)
    assert {key: chosen(choice, 1, key)[0] for key in first} == first


def test_sticky_moves_only_the_keys_of_a_parent_that_was_taken_out_of_the_list() -> None:
    parents = three()
    before = new_choice("sticky", parents)
    after = new_choice("sticky", parents[:2])
    for key in map(str, range(300)):
        index = chosen(before, 1, key)[0]
        assert index == 2 or chosen(after, 1, key)[0] == index


@pytest.mark.parametrize("number", [0, 1, 2**63, 2**64 - 2**10, 2**64 - 1])
def test_every_digest_has_a_score(number: int) -> None:
    assert 0 < _score_of(number, 1) < float("inf")


def test_sticky_keeps_to_the_weights() -> None:
    choice = new_choice("sticky", three(8, 1, 1))
    counts = Counter(chosen(choice, 1, str(key))[0] for key in range(2000))
    assert 1450 < counts[0] < 1750


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.sampled_from(["round_robin", "sticky"]))
def test_every_choice_is_one_of_the_usable(weights: list[int], policy: str) -> None:
    parents = three(*weights)
    choice = new_choice(policy, parents)
    usable = set(parents[::2])
    for key in range(20):
        assert choice.choose(str(key), lambda parent: parent in usable) in usable


# --- up and down ---


def test_a_parent_that_fails_is_left_alone_for_twice_as_long_each_time() -> None:
    parent = three()[0]
    now, waits = 0.0, []
    for _ in range(9):
        parent.failed(now, "refused")
        assert not parent.eligible(now)
        waits.append(parent.retry_at - now)
        now = parent.retry_at
        assert parent.eligible(now)
    assert waits == [1, 2, 4, 8, 16, 32, BACK_OFF_MAX, BACK_OFF_MAX, BACK_OFF_MAX]
    assert parent.succeeded(now)
    parent.failed(now, "refused")
    assert parent.retry_at == now + 1


def test_when_its_back_off_ends_one_trial_is_let_through_at_a_time() -> None:
    parent = three()[0]
    parent.failed(0.0, "refused")
    parent.tried(1.0, 30.0)
    assert not parent.eligible(2.0)
    assert parent.eligible(31.0)


def test_failures_at_the_same_time_are_one_failure() -> None:
    parent = three()[0]
    assert parent.failed(0.0, "refused")
    assert not any(parent.failed(0.1, "refused") for _ in range(20))
    assert parent.retry_at == 1.0
    assert parent.failures == 21


def test_doubts_in_a_row_bring_it_down_and_a_success_between_them_does_not() -> None:
    parent = three()[0]
    assert [parent.doubted(0.0, "503") for _ in range(DOUBTS_MAX - 1)] == [False] * (DOUBTS_MAX - 1)
    parent.succeeded(0.0)
    assert [parent.doubted(0.0, "503") for _ in range(DOUBTS_MAX)] == [False] * (DOUBTS_MAX - 1) + [True]


def test_a_changed_password_deserves_a_new_trial_at_once() -> None:
    parent = three()[0]
    parent.failed(0.0, "407")
    parent.renewed(parent.spec, 0)
    assert not parent.eligible(0.1)
    parent.renewed(spec(1, username="u", password="new"), 0)
    assert parent.eligible(0.1)


# --- session words ---


@pytest.mark.parametrize(
    ("username", "account", "word"),
    [
        ("alice-session-42", "alice", "42"),
        ("alice", "alice", None),
        ("alice-session-", "alice-session-", None),
        ("-session-42", "-session-42", None),
        ("a-session-b-session-c", "a-session-b", "c"),
        ("alice-sessions-42", "alice-sessions-42", None),
    ],
)
def test_the_session_word_is_what_stands_behind_the_last_mark(username: str, account: str, word: str | None) -> None:
    assert split_session(username) == (account, word)
