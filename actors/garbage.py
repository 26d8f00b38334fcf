"""Collections of garbage that walk over much hold up everything else: a hundred thousand objects take ten milliseconds.

The processes that carry traffic free what has ended without them, by the count of references: connections of all kinds,
and configurations that were replaced. A collection finds next to nothing there. So what is left after a full one that
took long is taken out of later ones, and full ones come soon enough when memory fills that none has much to do. What
was taken out is still freed when it ends; cycles of it would stay.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LONG: Final = 0.002
"""Seconds of the processor's time from which on a collection is long."""
THRESHOLDS: Final = (1000, 0, 0)
"""See `gc.set_threshold`. A full collection comes when 3,000 objects have come that stay (by default 85,000): each of
them is walked over three times in any case, and on a slow machine 1,000 take more than a millisecond."""
_FULL: Final = 2


class ShortCollections:
    """Called at the begin and end of each collection (`gc.callbacks`)."""

    def __init__(self, freeze: Callable[[], None] = gc.freeze, cpu: Callable[[], float] = time.thread_time) -> None:
        self._freeze = freeze
        self._cpu = cpu
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._began = self._cpu()
        elif self._cpu() - self._began > LONG:
            self._freeze()


@contextmanager
def without_collections() -> Iterator[None]:
    """While very much is made that stays: each collection in between would walk over what is there already.

    There is one at the end, and what it leaves is taken out of later ones.
    """
    gc.disable()
    try:
        yield
    finally:
        end_start()
        gc.enable()


def end_start() -> None:
    """Collect garbage once, and take what is left out of later collections: what a start leaves lives long.

    What was taken out before isn't touched: the API and the supervisor share the memory of much of it.
    """
    gc.collect()
    gc.freeze()


def spare_collections() -> None:
    """What is there now is taken out of later ones. Takes next to no time.

    For what replaces very much that is there already: the collector counts what has come less what has gone, so it
    would notice nothing of it, and walk over all of it at once later.
    """
    gc.freeze()


def shorten_collections() -> None:
    """From now on, in this process."""
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(ShortCollections())
