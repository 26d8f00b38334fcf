"""The latest uses: bytes of each 5 s of the last minute, requests of each 5 minutes of the last hour."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.bus.messages.metrics import RecentUse
from actors.metrics import recent
from actors.metrics.recent import BUCKETS, KEYS_MAX, LONG, SHORT, RecentUses, UpstreamUses, upstream_key
from actors.pools.state import OwnStates, identity, number_of, own_numbers, pool_state
from actors.pools.upstream import OWN_SPANS, Upstream
from tests.kit.live_state import PROXY, Machine
from tests.kit.upstreams import upstream_entry
from tests.unit.actors.pools.pools import pool

NOON = 1_767_268_800.0
"""The beginning of a bucket of either kind."""
NONE = (0,) * (BUCKETS - 1)


def test_bytes_are_a_rate_once_their_five_seconds_are_over_and_requests_count_at_once() -> None:
    uses = RecentUses(NOON)
    uses.add("prx_1", NOON + 1, 5000, 1, 0)
    uses.add("prx_1", NOON + 4.9, 5000, 2, 1)
    assert uses.of(["prx_1"], NOON + 4.9) == {"prx_1": RecentUse((0,) * BUCKETS, (*NONE, 3), (*NONE, 1))}
    assert uses.of(["prx_1"], NOON + 5)["prx_1"].rates == (*NONE, 2000)
    assert uses.of(["prx_1"], NOON + 5 + 55)["prx_1"].rates == (2000, *NONE)
    assert uses.of(["prx_1"], NOON + 5 + 60)["prx_1"].rates == (0,) * BUCKETS


def test_what_was_not_used_is_left_out_and_what_was_deleted_is_forgotten() -> None:
    uses = RecentUses(NOON)
    uses.add("acc_1", NOON, 1, 0, 0)
    uses.add("acc_2", NOON, 0, 0, 0)
    assert list(uses.of(["acc_1", "acc_2", "acc_3"], NOON)) == ["acc_1"]
    uses.forget("acc_1")
    assert uses.of(["acc_1"], NOON) == {}


def test_what_was_counted_before_is_in_its_buckets_and_of_accounts_the_time_before_is_unknown() -> None:
    began = NOON + 10 * LONG + 1
    uses = RecentUses(began)
    uses.remember([("prx_1", NOON, 4, 1), ("prx_1", NOON + 9 * LONG, 2, 0)])
    found = uses.of(["prx_1"], began)["prx_1"]
    assert found.requests == (0, 4, *(0,) * 8, 2, 0)
    assert found.failed == (0, 1, *(0,) * 10)
    assert [uses.unknown_before(began + each * LONG) for each in (0, 1, 10, 11, 100)] == [11, 10, 1, 0, 0]


def test_those_are_busy_that_have_a_rate_now() -> None:
    uses = RecentUses(NOON)
    for key in ("acc_1", "acc_2", "prx_1"):
        uses.add(key, NOON, 100, 1, 0)
    uses.add("acc_2", NOON + 7, 100, 1, 0)
    uses.add("acc_3", NOON, 0, 1, 0)
    assert uses.busy("acc_", NOON + 4) == []
    assert uses.busy("acc_", NOON + 5) == ["acc_1", "acc_2"]
    assert uses.busy("acc_", NOON + 10) == ["acc_2"]
    assert uses.busy("acc_", NOON + 3600) == []


def test_of_too_many_the_oldest_are_forgotten() -> None:
    uses = RecentUses(NOON)
    for number in range(KEYS_MAX + 1):
        uses.add(f"acc_{number}", NOON, 1, 1, 0)
    assert list(uses.of(["acc_0", f"acc_{KEYS_MAX}"], NOON)) == [f"acc_{KEYS_MAX}"]


@example([(0.0, 1), (60.0, 1)])
@given(st.lists(st.tuples(st.floats(0, 400), st.integers(1, 1000)), max_size=40))
def test_buckets_have_the_sum_of_what_came_in_their_time(steps: list[tuple[float, int]]) -> None:
    uses, at = RecentUses(NOON), NOON
    times = list(accumulate((wait for wait, _ in steps), initial=NOON))[1:]
    for (_wait, amount), at in zip(steps, times, strict=True):
        uses.add("prx_1", at, SHORT * amount, amount, 0)
    if not steps:
        return
    found, came = uses.of(["prx_1"], at)["prx_1"], list(zip(times, (each for _, each in steps), strict=True))

    def counted(width: int, last: int) -> tuple[int, ...]:
        numbers = range(last - BUCKETS + 1, last + 1)
        return tuple(sum(each for when, each in came if when // width == number) for number in numbers)

    assert found.rates == counted(SHORT, int(at // SHORT) - 1)
    assert found.requests == counted(LONG, int(at // LONG))


def test_of_a_pool_uses_checks_and_failures_count_by_upstream_and_together_from_the_first_sample_on(
    tmp_path: Path,
) -> None:
    spec, uses = pool("a", "b"), RecentUses(NOON)
    sampler = UpstreamUses(tmp_path, tmp_path / "state", uses)
    state = pool_state(tmp_path, spec)
    one, other = (
        Upstream(each, index, state.slots[index], 1.0, spec.name) for index, each in enumerate(spec.upstreams.entries)
    )
    one.acquire()
    sampler.sample(NOON)
    one.acquire()
    other.acquire()
    other.failed(1.0, "refused")
    state.slots[0].count_check(failed=False)
    sampler.sample(NOON + 5)
    sampler.sample(NOON + 10)
    keys = [upstream_key(spec.id, number_of(identity(each))) for each in spec.upstreams.entries]
    found = uses.of([spec.id, *keys], NOON + 10)
    assert {each: (use.requests[-1], use.failed[-1]) for each, use in found.items()} == {
        spec.id: (3, 1),
        keys[0]: (2, 0),
        keys[1]: (1, 1),
    }


def test_of_a_proxys_own_upstreams_each_worker_counts_for_itself_and_nothing_for_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "OWN_AT_ONCE", 1)
    machine, uses = Machine(tmp_path), RecentUses(NOON)
    sampler = UpstreamUses(tmp_path / "pools", tmp_path, uses)
    upstream = identity(upstream_entry(1))
    workers = [OwnStates(machine.state(worker=each), OWN_SPANS).slot(upstream, 1.0) for each in range(2)]
    other = OwnStates(machine.state("prx_2"), OWN_SPANS).slot(upstream, 1.0)
    workers[0].count_use(5, 10, 20)
    for at in (0, 5):  # each of the two files is looked at
        sampler.sample(NOON + at)
    workers[0].count_use(2, 0, 0)
    workers[1].count_use(1, 0, 0)
    workers[1].failed(1.0, "connect", "unreachable", "refused")
    other.count_use(7, 0, 0)
    for at in (10, 15):
        sampler.sample(NOON + at)
    keys = [upstream_key(PROXY, number) for number in own_numbers(upstream, 2)]
    found = uses.of([PROXY, "prx_2", *keys, upstream_key("prx_2", own_numbers(upstream, 1)[0])], NOON + 15)
    assert [(use.requests[-1], use.failed[-1]) for use in found.values()] == [(2, 0), (1, 1), (7, 0)]
    for file in tmp_path.glob("*.upstreams"):
        file.unlink()
    sampler.sample(NOON + 20)
    assert sampler._known == {}
