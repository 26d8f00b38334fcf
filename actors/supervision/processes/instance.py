"""One process of an actor, as its supervision sees it: how long it has been silent, whether it accepts, its end. The
route of an actor's name leads to the process that serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from actors.bus.loop import Loop
from actors.bus.mailbox import MailboxRouter, address_of
from actors.bus.messages.common import Done, Stop
from actors.supervision.processes.spawner import ActorProcess

SILENCE_MAX = 10.0
"""Seconds beyond its liveness deadline after which an actor counts as hung and is killed."""
START_MAX = 30.0
"""Seconds that the first process of an actor may take to its hello. After one that was killed for taking longer the
next may take twice as long: else each would be killed on a slow or busy machine, and none would ever serve."""
START_LONGEST = 480.0
"""So long at most."""
STOP_REPLY_MAX = 1.0
"""Seconds that a process may take to stop accepting, once it was asked to stop."""
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
    terminated: str = ""
    """What has asked this process alone to end: a SIGTERM."""
    start_max: float = START_MAX
    """Seconds that it may take to its hello."""

    @property
    def serves(self) -> bool:
        """True from its hello on."""
        return self.alive_at is not None

    @property
    def next_start_max(self) -> float:
        """Seconds that the next process may take to its hello, when this one was killed before."""
        return self.start_max if self.serves else min(2 * self.start_max, START_LONGEST)

    def drain(self, router: MailboxRouter, loop: Loop, name: str, seconds: float, quiet: Callable[[], None]) -> None:
        """Have it finish within so many seconds and end; one that doesn't serve yet is killed.

        `quiet` is called when it accepts nothing new. `name` is that of its actor.
        """
        process = self.process
        if not self.serves:
            process.kill()
            quiet()
            return

        def stopped(reply: object) -> None:
            self.stopped_accepting = isinstance(reply, Done)
            quiet()

        router.ask(address_of(name, process.instance), Stop(seconds), stopped, STOP_REPLY_MAX)
        process.end_after(loop, seconds)

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
        since, allowed = (self.requested_at, self.start_max) if self.alive_at is None else (self.alive_at, SILENCE_MAX)
        return now - since - allowed


class ActorRoute:
    """The route of one name. Workers are known by their index."""

    def __init__(self, router: MailboxRouter, name: str) -> None:
        self._router = router
        self._name = name
        self._serving: dict[int, int] = {}
        self._expected: set[int] = set()
        self._current: int | None = None

    def expect(self, index: int) -> None:
        """A process of this worker is starting."""
        self._expected.add(index)
        if self._current is None:
            self._router.expect(self._name)

    def serves(self, index: int, instance: int) -> None:
        """This process of the worker is ready for messages."""
        self._expected.discard(index)
        self._serving[index] = instance
        self._lead()

    def gone(self, index: int) -> None:
        """The worker has no process at present."""
        self._expected.discard(index)
        self._serving.pop(index, None)
        self._lead()

    def _lead(self) -> None:
        before, lowest = self._current, min(self._serving, default=None)
        self._current = None if lowest is None else self._serving[lowest]
        if self._current is not None:
            if self._current != before:
                self._router.set_current_instance(self._name, self._current)
        elif before is not None or not self._expected:
            self._router.clear_current_instance(self._name)
            if self._expected:
                self._router.expect(self._name)
