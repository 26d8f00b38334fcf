"""Entries about refused actions: bounded, so that a caller who repeats them fills no disk."""

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


@dataclass(slots=True)
class _Count:
    rows: int = 0
    left_out: int = 0


class RefusedActions:
    """Thread-safe. `append` writes an entry, as `Trail.append` does."""

    def __init__(self, append: Callable[..., object], clock: Callable[[], float] = time.monotonic) -> None:
        self._append = append
        self._clock = clock
        self._lock = threading.Lock()
        self._began = clock()
        self._counts: dict[str, _Count] = {}
        self._rows = 0

    def record(self, who: str, resource: dict[str, Any] | None, details: dict[str, Any]) -> None:
        """Record that `who` was refused something; `details` say why."""
        with self._lock:
            left_out = self._count(who)
        if left_out is None:
            return
        more = {"left_out": left_out} if left_out else {}
        self._append(ACTION, resource, outcome="failed", details={**details, **more})

    def _count(self, who: str) -> int | None:
        """How many entries of this caller were left out before this one; None when this one is, too."""
        if self._clock() - self._began >= WINDOW:
            self._began, self._rows = self._clock(), 0
            self._counts = {each: _Count(0, count.left_out) for each, count in self._counts.items() if count.left_out}
        count = self._counts.setdefault(who, _Count())
        if count.rows >= EACH or self._rows >= IN_ALL:
            count.left_out += 1
            return None
        left_out, count.left_out = count.left_out, 0
        count.rows += 1
        self._rows += 1
        return left_out
