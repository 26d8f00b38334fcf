"""The orderly end of many actors, in phases: senders of reports end before their receivers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.supervision.processes.lifecycle import State
from actors.supervision.processes.managed_actor import ManagedActor


class PhasedShutdown:
    """The actors of a phase are stopped when all of the phase before have ended and it isn't `busy` otherwise.

    `advance` is to be called whenever an actor has ended; `on_end` is called once, when all have.
    """

    def __init__(
        self,
        phases: Sequence[Sequence[ManagedActor]],
        stop: Callable[[ManagedActor], None],
        on_end: Callable[[], None],
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._phases = [list(phase) for phase in phases]
        self._stop = stop
        self._on_end: Callable[[], None] | None = on_end
        self._busy = busy
        self._advancing = False

    def advance(self) -> None:
        """Begin the phases that are due."""
        if self._advancing:
            return  # an actor ended as soon as it was stopped: the loop below sees it
        self._advancing = True
        while self._phases and self._is_over(self._phases[0]):
            del self._phases[0]
        self._advancing = False
        if not self._phases and self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end()

    def _is_over(self, phase: list[ManagedActor]) -> bool:
        for actor in phase:
            if actor.life.state not in (State.STOPPED, State.DRAINING):
                self._stop(actor)
        return not self._busy() and all(actor.life.state is State.STOPPED and not actor.drains for actor in phase)
