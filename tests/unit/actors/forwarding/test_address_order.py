"""In which order addresses are tried, and what silent ones cost."""

from __future__ import annotations

from actors.forwarding.net.resolver import SHUNNED_FIRST, SHUNNED_LONGEST, AddressOrder, preferring

V6 = ["2001:db8::1", "2001:db8::2"]
V4 = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]


def test_families_take_turns_and_the_first_one_begins() -> None:
    order = AddressOrder()
    assert order.order([*V6, *V4], 0.0) == [V6[0], V4[0], V6[1], V4[1], V4[2]]
    assert order.order([*V4, *V6], 0.0) == [V4[0], V6[0], V4[1], V6[1], V4[2]]
    assert order.order(V4[:1], 0.0) == V4[:1]


def test_one_family_may_come_first() -> None:
    assert preferring([V6[0], V4[0], V6[1]], v6_first=False) == (V4[0], *V6)
    assert preferring([V4[0], V6[0]], v6_first=True) == (V6[0], V4[0])


def test_a_silent_family_comes_last_for_a_while_and_each_time_for_longer() -> None:
    order = AddressOrder()
    order.was_silent(V6[0], V4[0], 0.0)
    assert order.order([*V6, *V4], 1.0) == [*V4, V6[1], V6[0]]
    assert order.order([*V6, *V4], SHUNNED_FIRST + 1)[0] == V6[0]
    order.was_silent(V6[0], V4[0], SHUNNED_FIRST + 1)
    assert order.order([*V6, *V4], 3 * SHUNNED_FIRST)[0] == V4[0]
    for _time in range(10):
        order.was_silent(V6[0], V4[0], 1e6)
    assert order.order([*V6, *V4], 1e6 + SHUNNED_LONGEST + 1)[0] == V6[0]


def test_a_silent_address_costs_its_family_nothing_when_another_of_it_connects() -> None:
    order = AddressOrder()
    order.was_silent(V6[0], V6[1], 0.0)
    assert order.order([*V6, *V4], 1.0) == [V4[0], V6[1], V4[1], V4[2], V6[0]]


def test_a_success_puts_it_right_again() -> None:
    order = AddressOrder()
    order.was_silent(V6[0], V4[0], 0.0)
    order.has_connected(V6[0])
    assert order.order([*V6, *V4], 1.0)[0] == V6[0]


def test_a_family_without_a_route_comes_last() -> None:
    order = AddressOrder()
    order.has_no_route(V6[0], 0.0)
    assert order.order([*V6, *V4], 1.0) == [*V4, *V6]
