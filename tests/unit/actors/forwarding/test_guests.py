"""Users that are no accounts: however many come, a bounded number is kept, and nothing of the others."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.specs import LimitsSpec
from actors.forwarding.limits.accounts import GUESTS_MAX, REVIEWED_AT_ONCE, Account, Guests
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.state.live_state import LiveState

LIMITS = LimitsSpec(requests_per_minute=10)


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def admitted(guests: Guests, name: str) -> Account:
    """A guest that has made a request."""
    guests.admit(name, LIMITS)
    guest = guests.get(name)
    assert guest is not None
    guest.usage.requested("192.0.2.1")
    return guest


def test_no_account_of_those_that_are_forgotten_is_held(loop: Loop) -> None:
    guests = Guests(loop, LiveState(lambda: loop.now))
    names = {admitted(guests, f"one of many {number}").spec.username for number in range(3 * GUESTS_MAX)}
    referenced = [each for each in gc.get_objects() if type(each) is Account and each.spec.username in names]
    assert len(referenced) == len(guests) == GUESTS_MAX
    assert not guests._usage.by_id.keys() - guests._by_name.keys()
    assert not guests._usage._changed.keys() - guests._by_name.keys()


def test_the_limits_that_came_last_hold(loop: Loop) -> None:
    guests = Guests(loop, LiveState(lambda: loop.now))
    guest = admitted(guests, "ada")
    for limits in (LimitsSpec(connections=2), None):
        guests.admit("ada", limits)
        assert guest.spec.limits == (limits or LimitsSpec())


def test_those_with_connections_stay_and_cost_a_new_one_no_more_than_a_few(loop: Loop) -> None:
    guests, bucket = Guests(loop, LiveState(lambda: loop.now)), TokenBucket(loop, 0)
    for number in range(GUESTS_MAX):
        guest = admitted(guests, f"busy {number}")
        guest.attach(Meter(lambda *_: None, bucket, bucket))
    in_order = list(guests._by_name)
    admitted(guests, "new")
    moved = [name for name in guests._by_name if name.startswith("busy")]
    assert moved == in_order[REVIEWED_AT_ONCE:] + in_order[:REVIEWED_AT_ONCE]
    assert len(guests) == GUESTS_MAX + 1


def test_the_surplus_goes_when_the_connections_have_ended(loop: Loop) -> None:
    guests, bucket = Guests(loop, LiveState(lambda: loop.now)), TokenBucket(loop, 0)
    used = []
    for number in range(GUESTS_MAX + 50):
        guest, meter = admitted(guests, f"busy {number}"), Meter(lambda *_: None, bucket, bucket)
        guest.attach(meter)
        used.append((guest, meter))
    assert len(guests) == GUESTS_MAX + 50
    for guest, meter in used:
        guest.detach(meter)
    for number in range(10):
        admitted(guests, f"new {number}")
    assert len(guests) == GUESTS_MAX


def test_who_comes_again_is_not_the_oldest_any_more(loop: Loop) -> None:
    guests = Guests(loop, LiveState(lambda: loop.now))
    for number in range(GUESTS_MAX):
        admitted(guests, f"user {number}")
    guests.admit("user 0", LIMITS)
    guests.admit("new", LIMITS)
    assert guests.get("user 0") is not None
    assert guests.get("user 1") is None
