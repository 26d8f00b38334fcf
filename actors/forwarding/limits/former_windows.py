"""Requests that were counted before the proxy slept, until the windows that they belong to are made again.

A window is made when its client, account or rule is met, so what was kept waits here for that. It counts for two
minutes at most.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.bus.loop import Loop
from actors.forwarding.limits.kept_window import KeptWindow
from actors.forwarding.limits.sliding_window import MINUTE, SlidingWindow

Key = tuple[str, ...]
"""What a window is of, and its name there: `("client", address)`, `("rule", policy, name)`."""


class FormerWindows:
    """Makes all windows of a process."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._kept: dict[Key, list[KeptWindow]] = {}

    def put(self, kept: Iterable[tuple[Key, KeptWindow]]) -> None:
        """Keep these for the windows to come. Several of one key add up."""
        for key, window in kept:
            self._kept.setdefault(key, []).append(window)
        if self._kept:
            self._loop.call_later(2 * MINUTE, self._kept.clear)

    def new(self, *key: str) -> SlidingWindow:
        """A window with what was kept for it."""
        window = SlidingWindow(self._loop.now)
        for each in self._kept.pop(key, ()) if self._kept else ():
            window.add(each)
        return window

    def take(self) -> Iterable[tuple[Key, SlidingWindow]]:
        """All windows that were not made so far; from now on there are none."""
        return [(key, self.new(*key)) for key in tuple(self._kept)]

    def left(self) -> Iterable[tuple[Key, KeptWindow]]:
        """What no window was made for so far."""
        return [(key, each) for key, kept in self._kept.items() for each in kept]

    def __repr__(self) -> str:
        return f"<FormerWindows: {len(self._kept)}>"
