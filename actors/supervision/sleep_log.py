"""Which proxies have fallen asleep or woken lately, so that who watches thousands reads only what has changed.

Each change is a step. Who knows the state as of a step asks for what has changed since.
"""

from __future__ import annotations

from collections import deque

KEPT = 4096
"""Changes that are remembered; who knows only an older state gets all that sleep."""


class SleepLog:
    """The last changes, by step: `step` is that of the last one, 0 when there was none."""

    def __init__(self) -> None:
        self.step = 0
        self._changed: deque[str] = deque(maxlen=KEPT)

    def note(self, proxy_id: str) -> None:
        """It sleeps from now on, or no longer."""
        self.step += 1
        self._changed.append(proxy_id)

    def since(self, step: int) -> set[str] | None:
        """Those that have changed since that step; None when that isn't known any more, or never was."""
        missing = self.step - step
        if step < 1 or not 0 <= missing <= len(self._changed):
            return None
        return {self._changed[-1 - index] for index in range(missing)}

    def __repr__(self) -> str:
        return f"<SleepLog: step {self.step}>"
