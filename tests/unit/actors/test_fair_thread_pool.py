"""Whose turn it is in a fair pool of threads, and what it costs to find that out; without threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors import thread_pool
from actors.bus.loop import Loop
from actors.thread_pool import DROPPED, FairThreadPool, Labels, _FairJob, _Queue, _Shares
from tests.kit.clocks import Clock

MOST = (2, 3)


def job(labels: Labels) -> _FairJob:
    return _FairJob(labels, lambda: None, lambda _result: None, lambda: True)


class Model:
    """The rule, gone over in full: labels take turns, first those of rows, then within a row."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, list[_FairJob]]] = {}
        self.running: Counter[tuple[int, str]] = Counter()

    def add(self, added: _FairJob, turn: Labels) -> None:
        self.rows.setdefault(turn[0], {}).setdefault(turn[1], []).append(added)

    def may_run(self, labels: Labels) -> bool:
        return all(self.running[each] < most for each, most in zip(enumerate(labels), MOST, strict=True))

    def eligible(self) -> list[_FairJob]:
        return [jobs[0] for row in self.rows.values() for jobs in row.values() if self.may_run(jobs[0].labels)]

    def take(self, taken: _FairJob) -> None:
        for first, row in self.rows.items():
            for second, jobs in row.items():
                if jobs[0] is taken:
                    jobs.pop(0)
                    self.rows = {each: of_it for each, of_it in self.rows.items() if each != first}
                    rest = {each: of_it for each, of_it in row.items() if each != second}
                    if jobs:
                        rest[second] = jobs
                    if rest:
                        self.rows[first] = rest
                    return
        raise AssertionError("it does not wait, or is not the first of its turn")

    def started(self, labels: Labels, change: int = 1) -> None:
        for each in enumerate(labels):
            self.running[each] += change


NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NAMES, st.sampled_from("xyz"), st.booleans()),
        st.tuples(st.just("pop"), st.booleans()),
        st.tuples(st.just("end"), st.integers(0, 9)),
    ),
    max_size=80,
)


@given(STEPS)
def test_a_job_that_may_run_is_always_found_and_no_other(steps: list[Any]) -> None:
    shares, model = _Shares(MOST), Model()
    queue = _Queue(shares)
    running: list[Labels] = []
    for kind, *given_ in steps:
        if kind == "add":
            first, second, by_subject = given_
            added = job((first, second))
            turn = (second, first) if by_subject else (first, second)
            assert queue.add(added, turn)
            model.add(added, turn)
        elif kind == "pop":
            eligible = model.eligible()
            popped = queue.pop()
            assert (popped is None) == (not eligible)
            if popped is None:
                continue
            assert any(popped is each for each in eligible)
            model.take(popped)
            if given_[0]:
                shares.started(popped.labels)
                model.started(popped.labels)
                running.append(popped.labels)
            else:
                queue.share_is_free(popped.labels)
        elif running:
            labels = running.pop(given_[0] % len(running))
            shares.ended(labels)
            model.started(labels, -1)
            queue.share_is_free(labels)
        assert len(queue) == sum(len(jobs) for row in model.rows.values() for jobs in row.values())


@given(st.lists(st.tuples(NAMES, st.sampled_from("xyz")), max_size=40))
def test_labels_take_turns(added: list[Labels]) -> None:
    shares, model = _Shares((100, 100)), Model()
    queue = _Queue(shares)
    for labels in added:
        one = job(labels)
        queue.add(one, labels)
        model.add(one, labels)
    for _ in added:
        popped = queue.pop()
        assert popped is model.eligible()[0]
        model.take(popped)


def test_a_label_at_its_share_is_the_first_when_it_has_one_again() -> None:
    shares = _Shares((1, 9))
    queue = _Queue(shares)
    for labels in (("a", "x"), ("a", "y"), ("b", "x"), ("c", "x")):
        queue.add(job(labels), labels)
    order = []
    for _ in range(3):
        popped = queue.pop()
        assert popped is not None
        shares.started(popped.labels)
        order.append(popped.labels)
    assert queue.pop() is None
    shares.ended(("a", "x"))
    queue.share_is_free(("a", "x"))
    last = queue.pop()
    assert last is not None
    assert [*order, last.labels] == [("a", "x"), ("b", "x"), ("c", "x"), ("a", "y")]


def counting(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often it was asked whether a label has a share left."""
    asked = 0
    used_up = _Shares.used_up

    def count(self: _Shares, level: int, label: str) -> bool:
        nonlocal asked
        asked += 1
        return used_up(self, level, label)

    monkeypatch.setattr(_Shares, "used_up", count)
    return lambda: asked


def test_ten_thousand_clients_that_wait_for_one_zone_are_not_gone_over_for_each_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = _Shares((4, 8))
    queue = _Queue(shares)
    for number in range(10_000):
        labels = (f"client{number}", "silent.example")
        queue.add(job(labels), labels)
    for _ in range(8):
        popped = queue.pop()
        assert popped is not None
        shares.started(popped.labels)
    assert queue.pop() is None
    asked = counting(monkeypatch)
    for number in range(100):
        labels = (f"other{number}", "quick.example")
        queue.add(job(labels), labels)
        assert queue.pop() is not None
        shares.ended(("client0", "silent.example"))
        queue.share_is_free(("client0", "silent.example"))
        popped = queue.pop()
        assert popped is not None
        assert popped.labels == (f"client{8 + number}", "silent.example")
        shares.started(("client0", "silent.example"))
    assert asked() < 1_000


def test_jobs_beyond_the_bound_of_all_are_dropped_whatever_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pool, "WAITING_IN_ALL", 10)
    loop = Loop(Clock(100.0))
    pool = FairThreadPool(loop, 0, (1, 1))
    results: dict[int, object] = {}
    for number in range(12):
        preferred = ("p", str(number)) if number % 2 else None
        labels = (str(number), "x")
        pool.submit(labels, lambda: None, partial(results.__setitem__, number), lambda: True, preferred)
    loop.turn(0)
    assert results == {10: DROPPED, 11: DROPPED}
    assert pool.waiting == 10
    loop.close()
