"""What processes will use is put together in memory, and works as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from actors.memory_layout import called_code, gather_code
from tests.unit.actors.layouts import alone, code_of, scattered


def test_the_code_of_all_that_is_called_is_found_in_order() -> None:
    def outer() -> None:
        inner()

    def inner() -> None:
        return

    def uncalled() -> None:
        return

    found = called_code(outer)
    assert [each for each in found if each.co_filename == __file__] == [code_of(outer), code_of(inner)]
    assert code_of(uncalled) not in found


def test_code_is_gathered_and_does_the_same() -> None:
    alone("code_is_gathered()")


def test_functions_that_are_made_afterwards_have_the_gathered_code() -> None:
    def outer(begin: int) -> Callable[[], Iterator[int]]:
        def numbers() -> Iterator[int]:
            yield from range(begin, begin + 3)

        return numbers

    old = code_of(outer(1))
    gather_code(called_code(lambda: list(outer(1)())))
    assert code_of(outer(1)) is not old
    assert code_of(outer(1)) is code_of(outer(2))
    assert list(outer(5)()) == [5, 6, 7]


def test_only_what_is_named_is_replaced() -> None:
    called, uncalled = scattered(2)
    before = code_of(uncalled)
    gather_code([code_of(called)])
    assert code_of(uncalled) is before


@pytest.mark.parametrize("size", [15 * 16, 63 * 16])
def test_new_objects_lie_together_after_the_gaps_are_filled(size: int) -> None:
    """Small ones are Python's own allocator's, larger ones the C library's."""
    alone(f"new_objects_lie_together({size})")
