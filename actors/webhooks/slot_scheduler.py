"""Which request begins now: slow targets may hold half of the slots, so that the others find one.

A target is quick when its last request ended soon. All others, new ones too, share one half of the slots and wait for
each other; quick ones may have all that are free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

QUICK = 2.0
"""Seconds within which a request to a quick target has ended."""


class SlotScheduler:
    """Of requests that are begun by a function of no arguments. All in one thread."""

    def __init__(self) -> None:
        self._quick: set[str] = set()
        self._waiting: deque[Callable[[], None]] = deque()
        self._slow = 0
        """Slots that are held by targets that aren't known to be quick."""
        self.slots = 1

    def acquire(self, target: str, begin: Callable[[], None]) -> bool:
        """Call `begin` now, or when there is a slot. Returns whether the target is quick, for `release`."""
        quick = target in self._quick
        if quick:
            begin()
        else:
            self._waiting.append(begin)
            self._begin_waiting()
        return quick

    def release(self, target: str, quick: bool, seconds: float) -> None:
        """A request has ended after so many seconds; `quick` is what `acquire` returned."""
        if seconds <= QUICK:
            self._quick.add(target)
        else:
            self._quick.discard(target)
        if not quick:
            self._slow -= 1
            self._begin_waiting()

    def keep(self, targets: set[str]) -> None:
        """Forget all other targets."""
        self._quick &= targets

    def _begin_waiting(self) -> None:
        while self._waiting and self._slow < max(1, self.slots // 2):
            self._slow += 1
            self._waiting.popleft()()
