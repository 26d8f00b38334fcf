"""What processes count of a key together: requests and connections; and what remains of those that end."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.state import counts
from actors.state.counts import COUNTED, SharedKey
from actors.state.live_state import RETRY, LiveState
from tests.kit.clocks import Clock
from tests.kit.live_state import PROXY, Killed, Machine, dies_after

LIMIT = 3


def keys(machine: Machine, number: int, *key: str) -> list[SharedKey]:
    """The same key in so many processes."""
    return [machine.state().key(*(key or ("client", "192.0.2.7"))) for _ in range(number)]


# --- requests ---


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 30.0)), max_size=50), st.integers(1, 8))
def test_never_are_there_more_than_the_limit_in_any_minute_and_places_are_free_a_second_later(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, float]], limit: int
) -> None:
    clock = Clock(1000.0)
    windows = keys(Machine(tmp_path_factory.mktemp("state"), clock), 3)
    admitted: list[float] = []
    for which, seconds in steps:
        clock.now += seconds
        counted = [moment for moment in admitted if moment > clock.now - 60]
        counted_late = [moment for moment in admitted if moment > clock.now - COUNTED]
        wait = windows[which].try_acquire(limit)
        if wait:
            assert len(counted_late) >= limit
            assert 1 <= wait <= COUNTED
            clock.now += wait
            assert windows[which].try_acquire(limit) == 0
        else:
            assert len(counted) < limit
        admitted.append(clock.now)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5), st.floats(0.0, 70.0)), max_size=40))
def test_the_sum_of_all_processes_is_that_of_the_last_61_seconds(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, float]]
) -> None:
    clock = Clock(1000.0)
    both = keys(Machine(tmp_path_factory.mktemp("state"), clock), 2)
    made: list[tuple[int, int]] = []
    for which, number, seconds in steps:
        clock.now += seconds
        both[which].add_requests(number)
        made.append((int(clock.now), number))
        for later in (0, 1, 3, 7, 59, 60, 61):
            second = int(clock.now) + later
            expected = sum(count for moment, count in made if moment > second - COUNTED)
            assert [each._requests(second) for each in both] == [expected] * 2


def test_a_limit_of_one_is_one_in_each_minute(machine: Machine, clock: Clock) -> None:
    for key in (machine.state().key("a"), LiveState(clock).key("a")):
        clock.now = 1000.5
        found = []
        for moment in (1000.5, 1001.0, 1060.9, 1061.0):
            clock.now = moment
            found.append(key.try_acquire(1))
        assert found == [0, 60, 1, 0]


def test_requests_of_a_process_that_has_ended_or_let_go_count_for_the_rest_of_their_minute(
    machine: Machine, clock: Clock
) -> None:
    states = [machine.state() for _ in range(3)]
    one, other, third = (each.key("a") for each in states)
    one.add_requests(2)
    other.add_requests(1)
    machine.end(states[0])
    other.release()
    assert third.try_acquire(LIMIT) == 61
    clock.now += COUNTED
    assert third.requests() == 0


def test_requests_outlive_all_processes_of_a_proxy(machine: Machine) -> None:
    state = machine.state()
    state.key("a").add_requests(LIMIT)
    machine.end(state)
    assert machine.state().key("a").try_acquire(LIMIT) > 0


def test_other_keys_and_other_proxies_are_others(machine: Machine) -> None:
    machine.state().key("client", "a").add_requests(LIMIT)
    assert machine.state().key("guest", "a").requests() == 0
    assert machine.state("px2").key("client", "a").requests() == 0


def test_an_account_is_one_on_all_proxies(machine: Machine) -> None:
    here, there = machine.state("px1").account("acc_1", "counts"), machine.state("px2").account("acc_1", "counts")
    here.add_requests(LIMIT)
    assert there.try_acquire(LIMIT) > 0


@pytest.mark.parametrize("idle", [0, 1, 5, 30, 70])
def test_a_kill_after_any_write_leaves_no_fewer_requests_than_were_admitted(tmp_path: Path, idle: int) -> None:
    """And at most one more, which ends with its minute."""
    for writes in range(200):
        clock = Clock(1000.0)
        machine = Machine(tmp_path / f"{writes}", clock)
        state, third = machine.state(), machine.state().key("a")
        key = state.key("a")
        for second in range(5):
            clock.now = 1000.0 + second
            key.add_requests(1)
        clock.now += idle
        left, numbers = [writes], key._place()
        killed = counts.Numbers(numbers.words)
        killed.words, killed.halves = dies_after(numbers.words, left), dies_after(numbers.halves, left)
        key._own = killed
        try:
            key.add_requests(1)
            finished = True
        except Killed:
            finished = False
        machine.end(state)
        for later in range(0, 70, 3):
            second = int(clock.now) + later
            before = sum(each > second - COUNTED for each in range(1000, 1005))
            admitted = before + (finished and later < COUNTED)
            assert admitted <= third._requests(second)
            if later >= COUNTED:
                assert third._requests(second) == 0
        if finished:
            return
    pytest.fail("a request has more writes than were tried")


# --- connections ---


def test_connections_are_those_of_all_that_live(machine: Machine) -> None:
    states = [machine.state() for _ in range(3)]
    one, other, third = (each.key("a") for each in states)
    one.set_connections(2)
    other.set_connections(3)
    assert (one.connections(), other.connections(), third.connections()) == (3, 2, 5)
    machine.end(states[0])
    assert (other.connections(), third.connections()) == (0, 3)
    other.release()
    assert third.connections() == 0


def test_who_counts_nothing_has_no_line_and_no_file(machine: Machine) -> None:
    key = machine.state().key("a")
    key.set_connections(0)
    assert (key.connections(), key.requests(), key.own_requests) == (0, 0, 0)
    key.release()
    assert [each.name for each in machine.folder.iterdir()] == ["processes"]


# --- alone ---


def test_a_process_without_a_file_counts_alone_and_together_once_there_is_one(
    machine: Machine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[str] = []

    def fail(*_args: object) -> None:
        raise OSError(28, "no space")

    one, other = (machine.state(PROXY, failures.append).key("a") for _ in range(2))
    monkeypatch.setattr(os, "posix_fallocate", fail)
    assert [one.try_acquire(2) for _ in range(3)] == [0, 0, 61]
    one.set_connections(1)
    assert other.try_acquire(2) == 0
    assert failures
    assert set(failures) == {"[Errno 28] no space"}
    monkeypatch.undo()
    assert other.try_acquire(2) == 0, "not before its time"
    clock.now += RETRY
    machine.run_timers()
    assert (other.requests(), other.connections()) == (4, 1)


def test_a_process_that_hangs_while_it_makes_a_file_costs_others_milliseconds_and_no_count(
    machine: Machine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[str] = []
    pauses: list[float] = []
    key, other = machine.state(PROXY, failures.append).key("a"), machine.state().key("a")
    monkeypatch.setattr(time, "sleep", pauses.append)
    folder = os.open(machine.folder, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    key.set_connections(2)
    assert sum(pauses) < 0.005
    assert failures == ["another process makes a file of live state, and doesn't end that"]
    os.close(folder)
    clock.now += RETRY
    machine.run_timers()
    assert other.connections() == 2


def test_what_could_have_no_line_gets_one_though_nothing_more_is_counted(machine: Machine, clock: Clock) -> None:
    state, hanging, other = machine.state(), machine.state(), machine.state().key("a")
    hanging.key("b").set_connections(1)
    table, key = hanging.proxy.present(), state.key("a")
    assert table is not None
    with table.exclusive(key._key):
        key.set_connections(2)
        clock.now += RETRY
        machine.run_timers()
        assert other.connections() == 0
    released = state.key("c")
    with table.exclusive(released._key):
        released.set_connections(1)
    released.release()
    clock.now += RETRY
    machine.run_timers()
    assert other.connections() == 2
    assert machine.state().key("c").connections() == 0
    assert not machine._timers


def test_without_a_place_among_the_processes_it_counts_alone(machine: Machine, clock: Clock) -> None:
    alone = LiveState(clock, machine.folder, PROXY, 0).key("a")
    machine.state().key("a").add_requests(LIMIT)
    assert alone.try_acquire(LIMIT) == 0
