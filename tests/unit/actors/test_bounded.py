"""Tables with a bound, by the work that a flood of new keys makes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actors.bounded import PART, keep


class Counting(dict[int, int]):
    """`begun` counts how often the oldest entry was looked for, which passes over all that were deleted."""

    begun = 0

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        return super().__iter__()


def test_a_flood_of_new_keys_looks_for_the_oldest_once_in_a_while() -> None:
    table, size = Counting(), 1_024
    for number in range(10 * size):
        keep(table, number, -number, size)
        assert len(table) <= size
    assert table.begun == 9 * PART
    assert len(table) > size * (PART - 1) // PART
    assert list(table.items()) == [(number, -number) for number in range(10 * size - len(table), 10 * size)]


def test_a_key_that_is_put_in_again_is_the_newest_and_costs_no_other() -> None:
    table = dict.fromkeys(range(64), 0)
    keep(table, 0, 1, 64)
    assert len(table) == 64
    keep(table, 64, 1, 64)
    assert list(table) == [*range(3, 64), 0, 64]


@pytest.mark.parametrize("size", [1, 2, 31])
def test_a_small_table_loses_one_entry_for_a_new_one(size: int) -> None:
    table: dict[int, None] = {}
    for number in range(100):
        keep(table, number, None, size)
    assert list(table) == list(range(100 - size, 100))
