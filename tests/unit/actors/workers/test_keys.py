"""Connections and requests by key: what one table says is what a dict would say, as long as a set has a place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.mapped_file import private
from actors.workers.keys import KIND, SETS, SLOT_SECONDS, SLOTS, WAYS, Digests, KeyTable, slot_at


def in_set(number: int, which: int = 5) -> int:
    """A digest that belongs to this set, another for each number."""
    return which + SETS * (number + 1)


@pytest.fixture(scope="module")
def memory() -> memoryview[int]:
    return private(KIND)


@pytest.fixture
def table(memory: memoryview[int]) -> KeyTable:
    memory[:] = memoryview(bytes(8 * len(memory))).cast("Q")
    return KeyTable(memory)


KEYS = st.integers(0, WAYS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("connections"), KEYS, st.integers(0, 5)),
        st.tuples(st.just("request"), KEYS, st.integers(0, SLOTS + 3)),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_counts_as_a_dict_does(steps: list[tuple[str, int, int]]) -> None:
    table = KeyTable(private(KIND))
    connections: dict[int, int] = {}
    requests: list[tuple[int, int]] = []
    slot = 1000
    for what, key, number in steps:
        digest = in_set(key)
        if what == "connections":
            assert table.set_connections(digest, number)
            connections[key] = number
        else:
            slot += number
            assert table.add_requests(digest, slot)
            requests.append((key, slot))
        for each in range(WAYS):
            counted = [at for of, at in requests if of == each and at > slot - SLOTS]
            assert table.connections(in_set(each)) == connections.get(each, 0)
            assert table.requests(in_set(each), slot) == len(counted)
            ages = table.by_age(in_set(each), slot)
            assert ages == [counted.count(slot - age) for age in range(SLOTS)]


def test_ten_slots_cover_a_minute_and_not_much_more(table: KeyTable) -> None:
    began = 7 * SLOT_SECONDS
    table.add_requests(1, slot_at(began + SLOT_SECONDS - 0.001))
    assert table.requests(1, slot_at(began + SLOT_SECONDS + 59.9)) == 1
    assert table.requests(1, slot_at(began + SLOTS * SLOT_SECONDS + 0.001)) == 0


def test_a_reader_that_is_behind_misses_nothing(table: KeyTable) -> None:
    table.add_requests(1, 50)
    table.add_requests(1, 51)
    assert table.requests(1, 50) == 2


def test_in_a_full_set_the_key_that_was_used_longest_ago_makes_room(table: KeyTable) -> None:
    for number in range(WAYS):
        table.add_requests(in_set(number), 100 + number)
    table.set_connections(in_set(0), 1)
    assert table.add_requests(in_set(WAYS), 108)
    assert table.requests(in_set(1), 108) == 0
    assert [table.requests(in_set(number), 108) for number in (0, 2, WAYS)] == [1, 1, 1]


def test_a_key_has_no_place_where_all_have_connections(table: KeyTable) -> None:
    for number in range(WAYS):
        assert table.set_connections(in_set(number), 1)
    assert not table.set_connections(in_set(WAYS), 1)
    assert not table.add_requests(in_set(WAYS), 100)
    assert table.set_connections(in_set(WAYS), 0)
    table.set_connections(in_set(3), 0)
    assert table.set_connections(in_set(WAYS), 2)
    assert (table.connections(in_set(WAYS)), table.connections(in_set(3))) == (2, 0)


def test_what_the_next_owner_cleans_are_the_connections(table: KeyTable) -> None:
    for number in range(3):
        table.set_connections(number + 1, 7)
        table.add_requests(number + 1, 100)
    table.clean()
    assert [table.connections(number + 1) for number in range(3)] == [0, 0, 0]
    assert [table.requests(number + 1, 100) for number in range(3)] == [1, 1, 1]


def test_a_key_of_one_proxy_is_none_of_another() -> None:
    one, again, other = Digests("p1"), Digests("p1"), Digests("p2")
    for key in (("client", "10.0.0.1"), ("account", "10.0.0.1"), ("guest", "\udc80"), ("rule", "a", "b")):
        assert one.of(*key) == one.of(*key) == again.of(*key) != other.of(*key)
    assert one.of("client", "10.0.0.1") != one.of("account", "10.0.0.1")
