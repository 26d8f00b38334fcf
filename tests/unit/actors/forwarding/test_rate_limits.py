"""Bandwidth, by a clock that is set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.token_bucket import TICK, Throttle, TokenBucket, Wake
from actors.net.client_key import client_key


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


class World:
    """A loop whose time goes on in small steps."""

    def __init__(self) -> None:
        self.hand = Hand()
        self.loop = Loop(self.hand)
        self.turns = 0

    def pass_time(self, seconds: float, step: float = 0.005) -> None:
        end = self.hand.time + seconds
        while self.hand.time < end - step / 2:
            self.hand.time += step
            self.loop.turn(0)
            self.turns += 1


class Greedy:
    """Always has more to move; `calls` counts how often it was called."""

    def __init__(self, throttle: Throttle, at_most: int = 1 << 20) -> None:
        self._throttle = throttle
        self._at_most = at_most
        self.moved = 0
        self.calls = 0

    def go_on(self) -> None:
        self.calls += 1
        while (share := self._throttle.available()) > 0:
            count = min(share, self._at_most)
            self._throttle.consume(count)
            self.moved += count
        self._throttle.wait(self.go_on)


class Purse:
    """An account or a credential whose quota has so much room."""

    spec = AccountSpec("acc_1", "ada", None)

    def __init__(self, bucket: TokenBucket, room: int) -> None:
        self._bucket = bucket
        self._room = room

    def bucket(self, _inward: bool) -> TokenBucket:
        return self._bucket

    def room(self) -> int:
        return self._room

    def wait(self, _wake: Wake) -> bool:
        return False

    def count(self, _inward: bool, _bytes_moved: int) -> None:
        """Of no matter."""

    def attach(self, _meter: Meter) -> None:
        """Of no matter."""

    def detach(self, _meter: Meter) -> None:
        """Of no matter."""


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.loop.close()


@pytest.mark.parametrize("rate", [1024, 50_000, 10_000_000, 1_000_000_000])
@pytest.mark.parametrize("flows", [1, 7])
def test_every_second_carries_the_rate_within_ten_percent(world: World, rate: int, flows: int) -> None:
    bucket = TokenBucket(world.loop, rate)
    greedy = [Greedy(Throttle(True, bucket)) for _ in range(flows)]
    for each in greedy:
        each.go_on()
    for second in range(4):
        before = sum(each.moved for each in greedy) if second else 0
        world.pass_time(1.0)
        carried = sum(each.moved for each in greedy) - before
        assert 0.9 * rate <= carried <= 1.1 * rate, f"second {second}"


def test_what_was_not_used_is_saved_up_for_a_moment_alone(world: World) -> None:
    bucket = TokenBucket(world.loop, 100_000)
    bucket.consume(bucket.available())
    world.pass_time(5.0, step=1.0)
    greedy = Greedy(Throttle(True, bucket))
    greedy.go_on()
    world.pass_time(1.0)
    assert greedy.moved <= 1.1 * 100_000


def test_of_an_account_and_its_credential_the_smaller_room_holds(world: World) -> None:
    unlimited = TokenBucket(world.loop, 0)
    holder: Any = object()
    for of_account, of_credential in ((10, 20), (20, 10)):
        meter = Meter(lambda *_: None, unlimited, unlimited)
        meter.attach(Purse(unlimited, of_account), holder, Purse(unlimited, of_credential))
        assert meter.inward.available() == 10


def test_a_request_that_is_sent_once_more_counts_once(world: World) -> None:
    unlimited = TokenBucket(world.loop, 0)
    holder: Any = object()
    admitted: list[str] = []
    meter = Meter(lambda _meter, user, *_: admitted.append(user), unlimited, unlimited)
    for again in range(2):
        meter.admit("ada", holder)
        meter.admit("ada", holder)
        assert admitted == ["ada"] * (again + 1)
        meter.exchange_over()


def test_no_one_is_called_in_vain_nor_more_often_than_each_tick(world: World) -> None:
    bucket = TokenBucket(world.loop, 100_000)
    greedy = Greedy(Throttle(True, bucket))
    greedy.go_on()
    world.pass_time(1.0, step=0.001)
    assert greedy.calls <= 1 / TICK + 2


def test_all_who_wait_flow_at_the_same_pace(world: World) -> None:
    bucket = TokenBucket(world.loop, 1_000_000)
    greedy = [Greedy(Throttle(True, bucket)) for _ in range(20)]
    for each in greedy:
        each.go_on()
    world.pass_time(1.0)
    before = [each.moved for each in greedy]  # the first had what an idle bucket saves up
    world.pass_time(4.0)
    moved = [each.moved - earlier for each, earlier in zip(greedy, before, strict=True)]
    assert min(moved) > 0.8 * sum(moved) / len(moved)
    assert max(moved) < 1.3 * sum(moved) / len(moved)


def test_the_narrower_of_two_buckets_decides(world: World) -> None:
    account, proxy = TokenBucket(world.loop, 20_000), TokenBucket(world.loop, 100_000)
    slow_one = Throttle(True, proxy)
    slow_one._buckets = (account, proxy)
    greedy = [Greedy(slow_one), Greedy(Throttle(True, proxy))]
    for each in greedy:
        each.go_on()
    world.pass_time(3.0)
    before = [each.moved for each in greedy]
    world.pass_time(2.0)
    slow, fast = (each.moved - earlier for each, earlier in zip(greedy, before, strict=True))
    assert 0.85 * 40_000 <= slow <= 1.1 * 40_000
    assert 0.9 * 200_000 <= slow + fast <= 1.1 * 200_000


def test_what_has_moved_already_is_paid_for_but_not_for_longer_than_a_second(world: World) -> None:
    bucket = TokenBucket(world.loop, 10_000)
    bucket.consume(1_000_000)
    woken: list[float] = []
    bucket.wait(lambda: woken.append(world.hand.time))
    world.pass_time(0.9)
    assert woken == []
    world.pass_time(0.2)
    assert len(woken) == 1


def test_a_limit_that_is_lifted_frees_those_who_wait(world: World) -> None:
    bucket = TokenBucket(world.loop, 1024)
    bucket.consume(100_000)
    woken: list[str] = []
    bucket.wait(lambda: woken.append("a"))
    bucket.wait(lambda: woken.append("b"))
    bucket.set_rate(0)
    world.pass_time(0.01)
    assert woken == ["a", "b"]
    assert bucket.available() > 1_000_000


def test_a_gate_waits_once_however_often_it_is_asked_to(world: World) -> None:
    bucket = TokenBucket(world.loop, 1024)
    throttle = Throttle(True, bucket)
    throttle.consume(5_000)
    woken: list[int] = []
    for _ in range(5):
        throttle.wait(lambda: woken.append(1))
    assert (bucket.waiting, throttle.waiting) == (1, True)
    world.pass_time(1.2)
    assert (woken, throttle.waiting) == ([1], False)


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_client_is_its_address_or_its_64(address: str, key: str) -> None:
    assert client_key(address) == key
