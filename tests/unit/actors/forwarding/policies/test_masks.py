"""Which rules hold for a port, and what it costs to find that out of many ranges."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.policies.masks import PortMasks, at_once, bits

PORTS = st.tuples(st.integers(1, 12), st.integers(1, 12)).map(lambda pair: (min(pair), max(pair)))


def filled(ranges: list[Any]) -> PortMasks:
    masks = PortMasks()
    at_once(masks.fill(ranges))
    return masks


@given(st.lists(st.tuples(PORTS, st.integers(0, 3)), max_size=12))
def test_the_rules_at_a_port_are_those_that_have_a_range_around_it(ranges: list[Any]) -> None:
    masks = filled(ranges)
    for port in range(14):
        expected = {index for (low, high), index in ranges if low <= port <= high}
        assert masks.at(port) == bits(expected)


def lines_for(count: int) -> int:
    """How many lines are executed to compile so many ranges, all of which overlap."""
    found = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal found
        found += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        filled([((1 + each, 30_000 + each), each) for each in range(count)])
    finally:
        sys.settrace(before)
    return found


def test_twice_as_many_ranges_cost_twice_as_much_not_four_times() -> None:
    """A body of 1 MiB has 80,000 of them, and the process of a proxy does nothing else meanwhile."""
    assert lines_for(800) < 2.5 * lines_for(400)
