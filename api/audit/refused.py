"""Entries that anybody can cause, as refused actions and failed sign-ins: bounded, so that repetition fills no disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ACTION = "access.refused"
EACH = 60
IN_ALL = 1_000
"""Entries in `WINDOW` seconds, of one caller and of all; the caller's next entry says how many were left out."""
WINDOW = 3600.0
CALLERS = 10_000
"""Callers that are counted at the same time; further ones share the entries of one."""


@dataclass(slots=True)
class _Count:
    rows: int = 0
    left_out: int = 0


class Budget:
    """How many entries callers may cause. Thread-safe. `clock` is monotonic."""

    def __init__(self, each: int = EACH, in_all: int = IN_ALL, clock: Callable[[], float] = time.monotonic) -> None:
        self._each = each
        self._in_all = in_all
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._counts: dict[str, _Count] = {}
        self._rows = 0

    def take(self, who: str) -> dict[str, int] | None:
        """Details of the caller's next entry: `left_out`, those before it that were not written. None: nor is it."""
        with self._lock:
            if self._clock() - self._began >= WINDOW:
                self._began, self._rows = self._clock(), 0
                self._counts = {name: _Count(0, each.left_out) for name, each in self._counts.items() if each.left_out}
            count = self._counts.setdefault(who if len(self._counts) < CALLERS or who in self._counts else "", _Count())
            if count.rows >= self._each or self._rows >= self._in_all:
                count.left_out += 1
                return None
            left_out, count.left_out = count.left_out, 0
            count.rows += 1
            self._rows += 1
            return {"left_out": left_out} if left_out else {}


class BoundedEntries:
    """Writes entries within a budget. Thread-safe. `append` is as `Trail.append`."""

    def __init__(self, append: Callable[..., object], clock: Callable[[], float] = time.monotonic) -> None:
        self._append = append
        self._budget = Budget(clock=clock)

    def record(
        self,
        who: str,
        resource: dict[str, Any] | None,
        details: dict[str, Any],
        action: str = ACTION,
        outcome: str = "failed",
    ) -> None:
        """Record what `who` has caused, by default that something was refused; `details` say why."""
        more = self._budget.take(who)
        if more is not None:
            self._append(action, resource, outcome=outcome, details={**details, **more} or None)
