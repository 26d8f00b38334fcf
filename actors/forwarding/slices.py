"""Going over all connections of a proxy, or what is made of them, a slice in each turn of the loop.

Ten thousand at once would be a stall.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from actors.bus.loop import Loop

T = TypeVar("T")

SLICE: Final = 250
"""What is visited in one turn; a millisecond or less."""


def in_slices(
    loop: Loop,
    waiting: dict[T, None],
    visit: Callable[[T], None],
    complete: Callable[[], None],
) -> None:
    """Visit those that wait, the first in this very call. What is not to be visited any more is removed by others.

    Then call `complete`, in this call as well if there were few.
    """
    for each in tuple(islice(waiting, SLICE)):
        if waiting.pop(each, each) is None:
            visit(each)
    if waiting:
        loop.call_soon(partial(in_slices, loop, waiting, visit, complete))
    else:
        complete()
