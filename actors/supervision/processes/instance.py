"""One process of an actor, as its supervision sees it: how long it has been silent, and whether it still accepts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from actors.supervision.processes.spawner import ActorProcess

SILENCE_MAX = 10.0
"""Seconds beyond its liveness deadline after which an actor counts as hung and is killed."""
START_MAX = 30.0
"""Seconds that a new process may take to its hello."""
STUCK_AFTER = 5.0
"""Seconds after which a process that was killed should be gone: then only a restart of everything may help."""


@dataclass(slots=True, eq=False)
class Instance:
    """`process` with what is known of it. Times are by the monotonic clock."""

    process: ActorProcess
    requested_at: float
    settings: dict[str, Any] = field(repr=False)
    """What it was sent, at its start or later."""
    alive_at: float | None = None
    """When it last turned its loop, as far as is known; None before its hello."""
    stopped_accepting: bool = False
    """It has acknowledged that it accepts nothing new."""
    terminated: bool = False
    """A SIGTERM to this process alone asked it to end."""

    @property
    def serves(self) -> bool:
        """True from its hello on."""
        return self.alive_at is not None

    def update_liveness(self, now: float) -> None:
        """Read its deadline. Past it, the process has worked since then; before it, it waits unless it was stopped."""
        deadline = self.process.deadline
        if self.alive_at is None:
            return
        if deadline <= now:
            self.alive_at = max(self.alive_at, deadline)
        elif now - self.alive_at > SILENCE_MAX / 2 and not self.process.stopped:
            self.alive_at = now

    def reset_liveness(self, now: float) -> None:
        """Count its silence from now on."""
        self.requested_at = now
        if self.serves:
            self.alive_at = now

    def seconds_overdue(self, now: float) -> float:
        """Seconds that it has been silent for longer than it may; negative while it may."""
        since, allowed = (self.requested_at, START_MAX) if self.alive_at is None else (self.alive_at, SILENCE_MAX)
        return now - since - allowed
