"""Life cycles as tables: what may happen in which state, and the state that follows.

A table is a dict from (state, event) to state. An event that a table does not list for a state is a mistake in the
supervisor itself: it raises and changes nothing.

The life of one actor:

            START            HELLO             STOP              ENDED
  stopped ─────────> starting ─────> running ─────> draining ──────────> stopped
                        │               │
                        └──── DIED ─────┴──────────> failed ── START ──> starting
                              REFUSED                       └─ STOP ───> stopped

             SLEEP             START
  running ─────────> sleeping ───────> starting
  stopped ─────────>    └──── STOP ──> stopped    or failed, when its address can't be bound: REFUSED

`sleeping` is for a proxy without clients: its sockets listen, and the first client starts it
(`actors.supervision.proxies.sleepers`). Its last processes may still drain.

`failed` means: it should run, doesn't, and is tried again after its back-off.

The delays before restarts are none, then 0.1 s, 0.2 s … 30 s; a run of 60 s resets them. It is OTP's restart intensity
turned into delays: a fault that happens once costs nothing, one that comes back at every start costs little CPU and
keeps the log readable, and the actor is never given up.

The life of the supervisor's program, from its start to its end or to its successor:

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

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeVar

from actors.bus.messages.common import LISTENER, PROCESS, Problem
from actors.bus.messages.supervision import Runtime

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class IllegalTransitionError(Exception):
    """The table of `subject` lists no such event for its state."""

    def __init__(self, subject: str, state: StrEnum, event: StrEnum) -> None:
        super().__init__(f"{event} can't happen to {subject} that is {state}")
        self.state = state
        self.event = event


def next_state(table: Mapping[tuple[S, E], S], subject: str, state: S, event: E) -> S:
    """The state after `event`. Raises `IllegalTransitionError`; `subject` names the kind of thing, with its article."""
    try:
        return table[state, event]
    except KeyError:
        raise IllegalTransitionError(subject, state, event) from None


FIRST_DELAY = 0.1
LONGEST_DELAY = 30.0
RESET_AFTER = 60.0
"""Seconds of running after which earlier failures don't count any more."""


class Backoff:
    """The delays of one actor. `now` is by the monotonic clock."""

    def __init__(self) -> None:
        self._failures = 0
        self._started: float | None = None

    def started(self, now: float) -> None:
        """It was started now."""
        self._started = now

    def failed(self, now: float) -> float:
        """It died, or could not be started, now. The seconds to wait before the next start."""
        if self._started is not None and now - self._started >= RESET_AFTER:
            self._failures = 0
        self._started = None
        self._failures += 1
        if self._failures == 1:
            return 0.0
        return float(min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self._failures - 2, 30)))

    def reset(self) -> None:
        """Earlier failures don't count any more."""
        self._failures = 0


class ActorState(StrEnum):
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


ACTOR_TRANSITIONS: dict[tuple[ActorState, LifecycleEvent], ActorState] = {
    (ActorState.STOPPED, LifecycleEvent.START): ActorState.STARTING,
    (ActorState.STOPPED, LifecycleEvent.REFUSED): ActorState.FAILED,
    (ActorState.STARTING, LifecycleEvent.HELLO): ActorState.RUNNING,
    (ActorState.STARTING, LifecycleEvent.DIED): ActorState.FAILED,
    (ActorState.STARTING, LifecycleEvent.STOP): ActorState.DRAINING,
    (ActorState.RUNNING, LifecycleEvent.DIED): ActorState.FAILED,
    (ActorState.RUNNING, LifecycleEvent.REFUSED): ActorState.FAILED,
    (ActorState.RUNNING, LifecycleEvent.STOP): ActorState.DRAINING,
    (ActorState.DRAINING, LifecycleEvent.ENDED): ActorState.STOPPED,
    (ActorState.DRAINING, LifecycleEvent.START): ActorState.STARTING,
    (ActorState.DRAINING, LifecycleEvent.REFUSED): ActorState.FAILED,
    (ActorState.FAILED, LifecycleEvent.START): ActorState.STARTING,
    (ActorState.FAILED, LifecycleEvent.REFUSED): ActorState.FAILED,
    (ActorState.FAILED, LifecycleEvent.STOP): ActorState.STOPPED,
    (ActorState.RUNNING, LifecycleEvent.SLEEP): ActorState.SLEEPING,
    (ActorState.STOPPED, LifecycleEvent.SLEEP): ActorState.SLEEPING,
    (ActorState.SLEEPING, LifecycleEvent.START): ActorState.STARTING,
    (ActorState.SLEEPING, LifecycleEvent.STOP): ActorState.STOPPED,
    (ActorState.SLEEPING, LifecycleEvent.REFUSED): ActorState.FAILED,
}


class Lifecycle:
    """The state of one actor with what the API reports of it. `clock` is wall time, for `since`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.state = ActorState.STOPPED
        self.since = clock()
        self.restarts = 0
        self.error: str | None = None
        self._reason = PROCESS

    def transition(self, event: LifecycleEvent, error: str | None = None) -> ActorState:
        """Enter the next state and return it. Raises `IllegalTransitionError`."""
        following = next_state(ACTOR_TRANSITIONS, "an actor", self.state, event)
        if following is not self.state:
            self.since = self._clock()
        self.state = following
        if following is ActorState.FAILED:
            self.error = error
            self._reason = LISTENER if event is LifecycleEvent.REFUSED else PROCESS
        elif following in (ActorState.RUNNING, ActorState.STOPPED, ActorState.SLEEPING):
            self.error = None
        return following

    def renewed(self) -> None:
        """A new process has replaced the older one without a gap."""
        self.since = self._clock()

    def runtime(self, pid: int | None) -> Runtime:
        """As the API reports it; a failure is a problem like others, during which no client is served."""
        failed = self.state is ActorState.FAILED
        problems = (Problem(self._reason, self.error or "", self.since, serves=False),) if failed else ()
        return Runtime(self.state.value, pid, self.since, self.restarts, self.error, problems=problems)

    def __repr__(self) -> str:
        return f"<Lifecycle {self.state.value}{f': {self.error}' if self.error else ''}>"


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


PROGRAM_TRANSITIONS: dict[tuple[ProgramState, ProgramEvent], ProgramState] = {
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
        self.state = next_state(PROGRAM_TRANSITIONS, "a program", self.state, event)
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
