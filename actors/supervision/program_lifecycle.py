"""The life of the supervisor's program, from its start to its end or to its successor, as a table of states.

             READY               STOP                 FINISHED or STOP
  starting ────────> running ───────────> draining ───────────────────> stopped
     │                  │                  ↑    ↑
     └─── HAND_OVER ────┴──> handing_over ─┘    └─ STOP ── handed_over
                                   │                            ↑
                                   └──────── FINISHED ──────────┘

STOP is possible in `starting`, too, and a second one in `draining` ends the program at once. Until the exec a STOP
takes a handover back: an operator who ends the product wants no successor.
"""

from __future__ import annotations

from enum import StrEnum

from actors.supervision.transitions import next_state


class ProgramState(StrEnum):
    """What the program is doing."""

    STARTING = "starting"
    """Not all fixed actors have run yet."""
    RUNNING = "running"
    DRAINING = "draining"
    """The product is ending: every actor drains."""
    HANDING_OVER = "handing_over"
    """All actors but the proxies drain, for the next program."""
    HANDED_OVER = "handed_over"
    """Nothing is left to wait for before the next program replaces this one."""
    STOPPED = "stopped"
    """Nothing is left to wait for; what still lives is killed."""


class ProgramEvent(StrEnum):
    """What may happen to the program."""

    READY = "ready"
    """The fixed actors run for the first time."""
    STOP = "stop"
    """SIGTERM or SIGINT."""
    HAND_OVER = "hand_over"
    """The next program would start, and is to replace this one."""
    FINISHED = "finished"
    """All that were to drain have ended, or their time is up."""


TRANSITIONS: dict[tuple[ProgramState, ProgramEvent], ProgramState] = {
    (ProgramState.STARTING, ProgramEvent.READY): ProgramState.RUNNING,
    (ProgramState.STARTING, ProgramEvent.STOP): ProgramState.DRAINING,
    (ProgramState.STARTING, ProgramEvent.HAND_OVER): ProgramState.HANDING_OVER,
    (ProgramState.RUNNING, ProgramEvent.STOP): ProgramState.DRAINING,
    (ProgramState.RUNNING, ProgramEvent.HAND_OVER): ProgramState.HANDING_OVER,
    (ProgramState.DRAINING, ProgramEvent.STOP): ProgramState.STOPPED,
    (ProgramState.DRAINING, ProgramEvent.FINISHED): ProgramState.STOPPED,
    (ProgramState.HANDING_OVER, ProgramEvent.STOP): ProgramState.DRAINING,
    (ProgramState.HANDING_OVER, ProgramEvent.FINISHED): ProgramState.HANDED_OVER,
    (ProgramState.HANDED_OVER, ProgramEvent.STOP): ProgramState.DRAINING,
    # The loop finishes its turn, in which a timer or another signal may come.
    (ProgramState.HANDED_OVER, ProgramEvent.FINISHED): ProgramState.HANDED_OVER,
    (ProgramState.STOPPED, ProgramEvent.STOP): ProgramState.STOPPED,
    (ProgramState.STOPPED, ProgramEvent.FINISHED): ProgramState.STOPPED,
}


class ProgramLifecycle:
    """The state of the program."""

    def __init__(self) -> None:
        self.state = ProgramState.STARTING

    def transition(self, event: ProgramEvent) -> ProgramState:
        """Enter the next state and return it. Raises `IllegalTransitionError`."""
        self.state = next_state(TRANSITIONS, "a program", self.state, event)
        return self.state

    @property
    def is_ending(self) -> bool:
        """True from the first STOP or HAND_OVER on: nothing is started any more."""
        return self.state not in (ProgramState.STARTING, ProgramState.RUNNING)

    @property
    def closes_listeners(self) -> bool:
        """True when the product ends and no next program gets its listeners."""
        return self.state in (ProgramState.DRAINING, ProgramState.STOPPED)

    def __repr__(self) -> str:
        return f"<ProgramLifecycle {self.state}>"
