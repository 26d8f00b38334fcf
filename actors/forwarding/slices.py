"""Going over all connections of a proxy, a slice in each turn of the loop: ten thousand at once would be a stall."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from actors.bus.loop import Loop
from actors.forwarding.connection import Connection

SLICE: Final = 250
"""Connections that are visited in one turn; a millisecond or less."""


def in_slices(
    loop: Loop,
    waiting: dict[Connection, None],
    visit: Callable[[Connection], None],
    complete: Callable[[], None],
) -> None:
    """Visit those that wait, the first in this very call. What is not to be visited any more is removed by others.

    Then call `complete`, in this call as well if there were few.
    """
    for connection in tuple(islice(waiting, SLICE)):
        if waiting.pop(connection, connection) is None:
            visit(connection)
    if waiting:
        loop.call_soon(partial(in_slices, loop, waiting, visit, complete))
    else:
        complete()
