"""Failures of sign-ins as they are counted: windows, locks, and what is forgotten."""

from __future__ import annotations

import pytest

from api.security import login_throttle
from api.security.login_throttle import LOCK, WINDOW, LoginThrottle
from tests.kit.clocks import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


def fail(counted: LoginThrottle, times: int, name: str = "ada", address: str = "192.0.2.1") -> list[bool]:
    return [counted.failed(name, address) for _ in range(times)]


def test_the_last_failure_that_is_allowed_locks_for_fifteen_minutes(clock: Clock) -> None:
    counted = LoginThrottle(lambda: 5, clock)
    assert fail(counted, 5) == [False] * 4 + [True]
    assert counted.locked_for("ada", "192.0.2.1") == LOCK
    clock.now += LOCK - 0.5
    assert counted.locked_for("ADA", "192.0.2.1") == 1  # names have no case
    clock.now += 0.5
    assert counted.locked_for("ada", "192.0.2.1") == 0


def test_failures_older_than_five_minutes_count_no_more(clock: Clock) -> None:
    counted = LoginThrottle(lambda: 5, clock)
    fail(counted, 4)
    clock.now += WINDOW + 1
    assert fail(counted, 4) == [False] * 4


@pytest.mark.parametrize(("name", "address"), [("ada", "192.0.2.2"), ("bob", "192.0.2.1"), ("ada", "::1")])
def test_another_address_and_another_name_are_not_locked(clock: Clock, name: str, address: str) -> None:
    counted = LoginThrottle(lambda: 1, clock)
    fail(counted, 1)
    assert counted.locked_for(name, address) == 0


def test_addresses_of_one_home_network_count_together(clock: Clock) -> None:
    counted = LoginThrottle(lambda: 5, clock)
    locked = [counted.failed("ada", f"2001:db8:0:1::{each:x}") for each in range(1, 6)]
    assert locked == [False] * 4 + [True]
    assert counted.locked_for("ada", "2001:db8:0:1:ffff::1") > 0
    assert counted.locked_for("ada", "2001:db8:0:2::1") == 0
    assert counted.locked_for("ada", "::ffff:192.0.2.1") == 0


def test_a_name_that_is_forgotten_may_try_again_from_all_addresses_and_no_other_name(clock: Clock) -> None:
    counted = LoginThrottle(lambda: 2, clock)
    for name, address in (("ada", "192.0.2.1"), ("ada", "192.0.2.2"), ("bob", "192.0.2.1")):
        fail(counted, 2, name, address)
    counted.forget("ADA")
    assert counted.locked_for("ada", "192.0.2.1") == counted.locked_for("ada", "192.0.2.2") == 0
    assert counted.locked_for("bob", "192.0.2.1") == LOCK


def test_another_limit_holds_for_the_next_failure(clock: Clock) -> None:
    limits = [5]
    counted = LoginThrottle(lambda: limits[0], clock)
    fail(counted, 2)
    limits[0] = 3
    assert fail(counted, 1) == [True]


def test_pairs_that_are_forgotten_are_those_that_failed_longest_ago(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_throttle, "REMEMBERED", 3)
    counted = LoginThrottle(lambda: 1, clock)
    for name in ("a", "b", "a", "c", "d"):
        fail(counted, 1, name)
    assert [name for name in "abcd" if counted.locked_for(name, "192.0.2.1")] == ["a", "c", "d"]
    assert len(counted._records) == 3
