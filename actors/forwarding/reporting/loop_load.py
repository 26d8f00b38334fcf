"""How busy the loop of a forwarding actor is, and its longest turn: while one lasts, all other clients wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from actors.bus.loop import Loop

WINDOW: Final = 30.0
"""Seconds. What is reported is of one to two of them, so that a scrape every half minute misses no long turn."""


class Load(NamedTuple):
    """`busy` is the share of time that the process had a processor, 0 to 1.

    `turn_max_ms` is the longest turn in milliseconds.
    """

    busy: float = 0.0
    turn_max_ms: float = 0.0


class LoopLoad:
    """Reads the load since the begin of the window before the present one."""

    def __init__(self, loop: Loop, cpu: Callable[[], float] = time.process_time) -> None:
        self._loop = loop
        self._cpu = cpu
        self._begun = self._before = (loop.now, cpu())
        """The time and the processor time at which the present window and the one before it began."""
        self._longest_before = 0.0

    def read(self) -> Load:
        """The load now. To be called every few seconds while there is traffic."""
        loop = self._loop
        longest = max(loop.longest_turn, self._longest_before)
        since, used = self._before
        passed, cpu = loop.now - since, self._cpu()
        load = Load(min(1.0, (cpu - used) / passed) if passed > 0 else 0.0, longest * 1000)
        if loop.now - self._begun[0] >= WINDOW:
            self._before, self._longest_before = self._begun, loop.longest_turn
            self._begun, loop.longest_turn = (loop.now, cpu), 0.0
        return Load(round(load.busy, 4), round(load.turn_max_ms, 3))

    def __repr__(self) -> str:
        return f"<LoopLoad since {self._before[0]:.1f}>"
