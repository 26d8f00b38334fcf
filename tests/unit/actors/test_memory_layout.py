"""What processes will use is put together in memory, and works as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

from actors.memory_layout import called_code, fill_gaps, gather_code

PAGE = 4096

_SOURCE = """
def function_{0}(number):
    def inner(plus=number):
        return [each + plus for each in range(number)]
    return inner(), "a text that only this function has: {0}"
"""


def scattered(count: int) -> list[Callable[[int], Any]]:
    """Functions whose code lies between that of others, nine for each."""
    made: dict[str, Any] = {}
    for number in range(10 * count):
        exec(_SOURCE.format(number), made)
    return [made[f"function_{number}"] for number in range(0, 10 * count, 10)]


def code_of(function: Callable[..., Any]) -> CodeType:
    assert isinstance(function, FunctionType)
    return function.__code__


def pages(functions: list[Callable[[int], Any]]) -> int:
    return len({id(code_of(each)) // PAGE for each in functions})


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
    functions = scattered(60)

    def results() -> list[Any]:
        return [each(number) for number, each in enumerate(functions)]

    before, before_pages = results(), pages(functions)
    gather_code(called_code(results))
    assert pages(functions) < before_pages / 3
    assert results() == before


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
    kept = [bytes(size - 33) for _ in range(2_000)][::2]  # the others leave gaps
    fill_gaps()
    new = sorted(id(bytes_) for bytes_ in [bytes(size - 33) for _ in range(1_000)])
    assert len(kept) == 1_000
    assert len({address // PAGE for address in new}) < 1_000 * size / PAGE * 1.2
