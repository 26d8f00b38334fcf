"""Ranges of ports: how they are written, and which overlap."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.net.names import Ports, merged
from tests.kit.tables import table

PORTS = st.integers(1, 65535)
RANGES = st.tuples(PORTS, PORTS).map(lambda two: Ports(min(two), max(two)))


@given(RANGES)
def test_what_is_written_is_read_as_the_same(ports: Ports) -> None:
    assert Ports.read(str(ports)) == ports
    assert Ports.of(ports.first, ports.stored_last) == ports
    assert str(ports.written) == str(ports)
    assert isinstance(ports.written, int) == (len(ports) == 1)


@table(
    ("text", "words"),
    [
        ("0", "from 1 to 65535"),
        ("0-5", "from 1 to 65535"),
        ("1-65536", "from 1 to 65535"),
        ("70000", "from 1 to 65535"),
        ("5-", "like 20000-20999"),
        ("-5", "like 20000-20999"),
        ("", "like 20000-20999"),
        ("1-2-3", "like 20000-20999"),
        ("01-2", "like 20000-20999"),
        ("1 - 2", "like 20000-20999"),
        ("1-2\n", "like 20000-20999"),
        ("٣-٤", "like 20000-20999"),
        ("9-8", "the lower port first"),
    ],
)
def test_what_is_no_range_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Ports.read(text)


@given(st.tuples(st.integers(1, 30), st.integers(1, 30)), st.tuples(st.integers(1, 30), st.integers(1, 30)))
def test_ranges_overlap_where_a_port_is_in_both(one: tuple[int, int], two: tuple[int, int]) -> None:
    a, b = (Ports(min(each), max(each)) for each in (one, two))
    assert a.overlaps(b) == bool(set(a) & set(b)) == any(port in a for port in b)
    assert len(a) == len(list(a))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 40), st.integers(0, 9))))
def test_merged_ranges_are_the_same_addresses_and_no_two_of_them_touch(given: list[tuple[str, int, int]]) -> None:
    ranges = [(host, first, first + more) for host, first, more in given]
    found = merged(ranges)
    assert {(host, port) for host, first, last in ranges for port in range(first, last + 1)} == {
        (host, port) for host, first, last in found for port in range(first, last + 1)
    }
    assert all(one[0] < two[0] or one[2] + 1 < two[1] for one, two in pairwise(found))
