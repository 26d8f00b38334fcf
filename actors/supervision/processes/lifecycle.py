"""The life of one actor as a table of states.

            START            HELLO             STOP              ENDED
  stopped ─────────> starting ─────> running ─────> draining ──────────> stopped
                        │               │
                        └──── DIED ─────┴──────────> failed ── START ──> starting
                              REFUSED                       └─ STOP ───> stopped

             SLEEP             START
  running ─────────> sleeping ───────> starting
  stopped ─────────>    └──── STOP ──> stopped    or failed, when its address can't be bound: REFUSED

`sleeping` is for a proxy without clients: its sockets listen, and the first client starts it
(`actors.supervision.asleep`). Its last processes may still drain.

`failed` means: it should run, doesn't, and is tried again after its back-off. An event that the table doesn't list for
a state raises `actors.supervision.transitions.IllegalTransitionError` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from actors.bus.messages.problems import LISTENER, PROCESS, Problem
from actors.bus.messages.supervision import Runtime
from actors.supervision.transitions import next_state


class State(StrEnum):
    """What an actor is doing; the values are those of `runtime.state` in the API."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    FAILED = "failed"
    SLEEPING = "sleeping"


class LifecycleEvent(StrEnum):
    """What may happen to an actor."""

    START = "start"
    """A process is being made."""
    HELLO = "hello"
    """It is ready for work."""
    DIED = "died"
    """It ended without having been asked to."""
    REFUSED = "refused"
    """It can't even be started: its listening socket can't be bound."""
    STOP = "stop"
    """It was asked to end, or is not wanted any more."""
    ENDED = "ended"
    """It ended as it was asked to."""
    SLEEP = "sleep"
    """It has no client, and needs no process until one comes."""


TRANSITIONS: dict[tuple[State, LifecycleEvent], State] = {
    (State.STOPPED, LifecycleEvent.START): State.STARTING,
    (State.STOPPED, LifecycleEvent.REFUSED): State.FAILED,
    (State.STARTING, LifecycleEvent.HELLO): State.RUNNING,
    (State.STARTING, LifecycleEvent.DIED): State.FAILED,
    (State.STARTING, LifecycleEvent.STOP): State.DRAINING,
    (State.RUNNING, LifecycleEvent.DIED): State.FAILED,
    (State.RUNNING, LifecycleEvent.REFUSED): State.FAILED,
    (State.RUNNING, LifecycleEvent.STOP): State.DRAINING,
    (State.DRAINING, LifecycleEvent.ENDED): State.STOPPED,
    (State.DRAINING, LifecycleEvent.START): State.STARTING,
    (State.DRAINING, LifecycleEvent.REFUSED): State.FAILED,
    (State.FAILED, LifecycleEvent.START): State.STARTING,
    (State.FAILED, LifecycleEvent.REFUSED): State.FAILED,
    (State.FAILED, LifecycleEvent.STOP): State.STOPPED,
    (State.RUNNING, LifecycleEvent.SLEEP): State.SLEEPING,
    (State.STOPPED, LifecycleEvent.SLEEP): State.SLEEPING,
    (State.SLEEPING, LifecycleEvent.START): State.STARTING,
    (State.SLEEPING, LifecycleEvent.STOP): State.STOPPED,
    (State.SLEEPING, LifecycleEvent.REFUSED): State.FAILED,
}


class Lifecycle:
    """The state of one actor with what the API reports of it. `clock` is wall time, for `since`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.state = State.STOPPED
        self.since = clock()
        self.restarts = 0
        self.error: str | None = None
        self._reason = PROCESS

    def transition(self, event: LifecycleEvent, error: str | None = None) -> State:
        """Enter the next state and return it. Raises `IllegalTransitionError`."""
        following = next_state(TRANSITIONS, "an actor", self.state, event)
        if following is not self.state:
            self.since = self._clock()
        self.state = following
        if following is State.FAILED:
            self.error = error
            self._reason = LISTENER if event is LifecycleEvent.REFUSED else PROCESS
        elif following in (State.RUNNING, State.STOPPED, State.SLEEPING):
            self.error = None
        return following

    def renewed(self) -> None:
        """A new process has replaced the older one without a gap."""
        self.since = self._clock()

    def runtime(self, pid: int | None) -> Runtime:
        """As the API reports it; a failure is a problem like others, during which no client is served."""
        failed = self.state is State.FAILED
        problems = (Problem(self._reason, self.error or "", self.since, serves=False),) if failed else ()
        return Runtime(self.state.value, pid, self.since, self.restarts, self.error, problems=problems)

    def __repr__(self) -> str:
        return f"<Lifecycle {self.state.value}{f': {self.error}' if self.error else ''}>"
