"""What is kept of the requests of each client: it ends with the traffic, and no turn walks over all of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from actors.bus.loop import Loop
from actors.forwarding.limits import client_windows
from actors.forwarding.limits.client_windows import FORGOTTEN_AT_ONCE, PERIOD, ClientWindows
from actors.state.counts import COUNTED, LiveState
from tests.kit.clocks import Clock

LIMIT = 3


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def loop(clock: Clock) -> Iterator[Loop]:
    made = Loop(clock)
    yield made
    made.close()


def request(windows: ClientWindows, number: int, loop: Loop) -> int:
    return windows.window(f"10.0.{number // 250}.{number % 250}").try_acquire(LIMIT)


def test_a_client_is_counted_for_a_minute(loop: Loop, clock: Clock) -> None:
    windows = ClientWindows(loop, LiveState(lambda: loop.now))
    assert [request(windows, 1, loop) for _ in range(LIMIT + 1)] == [0] * LIMIT + [COUNTED]
    clock.now += COUNTED
    loop.turn(0)
    assert request(windows, 1, loop) == 0


def test_clients_of_one_slash_64_are_one(loop: Loop) -> None:
    windows = ClientWindows(loop, LiveState(lambda: loop.now))
    assert windows.window("2001:db8::1") is windows.window("2001:db8::2")
    assert windows.window("2001:db8::1") is not windows.window("2001:db8:0:1::1")


def test_each_new_client_replaces_idle_ones(loop: Loop, clock: Clock) -> None:
    windows = ClientWindows(loop, LiveState(lambda: loop.now))
    for number in range(1000):
        request(windows, number, loop)
    clock.now += COUNTED + 1
    loop.now = clock.now
    lengths = [len(windows)]
    for number in range(1000, 2000):
        request(windows, number, loop)
        lengths.append(len(windows))
    assert all(before - after <= 1 for before, after in itertools.pairwise(lengths))
    assert len(windows) == 1000


def test_clients_that_go_on_are_kept_and_others_are_not(loop: Loop, clock: Clock) -> None:
    windows = ClientWindows(loop, LiveState(lambda: loop.now))
    for number in range(10):
        request(windows, number, loop)
    clock.now += 30
    loop.turn(0)
    assert request(windows, 0, loop) == 0  # it is the oldest by its first request
    clock.now += 32
    loop.turn(0)
    for number in range(10, 20):
        request(windows, number, loop)
    assert len(windows) == 11
    assert [request(windows, 0, loop) for _ in range(3)] == [0, 0, 29]


def test_the_timer_forgets_all_when_no_client_comes_any_more_some_in_each_turn(loop: Loop, clock: Clock) -> None:
    windows = ClientWindows(loop, LiveState(lambda: loop.now))
    for number in range(3 * FORGOTTEN_AT_ONCE):
        request(windows, number, loop)
    end, before = clock.now + COUNTED + 2 * PERIOD, len(windows)
    while clock.now < end:
        clock.now += 0.25
        loop.turn(0)
        assert before - len(windows) <= FORGOTTEN_AT_ONCE
        before = len(windows)
    assert len(windows) == 0
    assert loop._timers == []


def test_a_flood_of_clients_is_bounded(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_windows, "CLIENTS_MAX", 100)
    windows = ClientWindows(loop, LiveState(lambda: loop.now))
    for number in range(300):
        request(windows, number, loop)
    assert len(windows) == 100
