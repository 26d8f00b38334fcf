"""Work on tens of thousands of entries as generators, so that a loop can turn in between."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

Portions = Generator[int, None, Result]
"""Yields the work that was done since it yielded before, as a number of entries that are read; returns the result."""

PORTION: Final = 50
SORTED: Final = 8
"""So many entries are put into a table in the time in which one is read."""


def in_portions(work: Callable[[Item], Result], items: Iterable[Item]) -> Portions[list[Result]]:
    """What `work`, which reads an entry, returns for each of them."""
    results: list[Result] = []
    done = 0
    for item in items:
        results.append(work(item))
        done += 1
        if done == PORTION:
            yield done
            done = 0
    if done:
        yield done
    return results


def put_in(add: Callable[[Item], object], items: Iterable[Item]) -> Portions[None]:
    """Call `add`, which puts an entry into a table, for each of them."""
    for count, item in enumerate(items, 1):
        add(item)
        if count % (SORTED * PORTION) == 0:
            yield PORTION


def at_once(portions: Portions[Result]) -> Result:
    """The result of all portions, without a turn in between."""
    while True:
        try:
            next(portions)
        except StopIteration as end:
            result: Result = end.value
            return result
