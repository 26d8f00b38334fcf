"""Whose request begins now: targets that are slow may hold half of the places, so that the others find one.

A target has shown that it is quick when its last request ended soon. All others, those too that nothing is known of
yet, share one half of the places and wait for each other; quick ones may have all that are free.
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
        """Places that are held by targets that aren't known to be quick."""
        self.places = 1

    def take(self, target: str, begin: Callable[[], None]) -> bool:
        """Begin now, or when there is a place. The answer is for `over`."""
        quick = target in self._quick
        if quick:
            begin()
        else:
            self._waiting.append(begin)
            self._go_on()
        return quick

    def over(self, target: str, quick: bool, seconds: float) -> None:
        """A request has ended after so many seconds; `quick` is what `take` has said."""
        if seconds <= QUICK:
            self._quick.add(target)
        else:
            self._quick.discard(target)
        if not quick:
            self._slow -= 1
            self._go_on()

    def keep(self, targets: set[str]) -> None:
        """There are no others any more."""
        self._quick &= targets

    def _go_on(self) -> None:
        while self._waiting and self._slow < max(1, self.places // 2):
            self._slow += 1
            self._waiting.popleft()()
