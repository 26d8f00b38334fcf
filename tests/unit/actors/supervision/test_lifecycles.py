"""The lives of an actor, of a listener and of the supervisor's program, and restart delays, as tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from actors.supervision import lifecycle
from actors.supervision.lifecycle import (
    RESET_AFTER,
    ActorState,
    Backoff,
    IllegalTransitionError,
    Lifecycle,
    LifecycleEvent,
    ProgramEvent,
    ProgramLifecycle,
    ProgramState,
)
from actors.supervision.listeners import registry
from actors.supervision.listeners.registry import ListenerEvent, ListenerGroup, ListenerState
from config.net.names import Ports
from tests.kit.tables import table


def life_in(state: ActorState) -> Lifecycle:
    life = Lifecycle(lambda: 1.0)
    life.state = state
    return life


def program_in(state: ProgramState) -> ProgramLifecycle:
    life = ProgramLifecycle()
    life.state = state
    return life


def listener_in(state: ListenerState) -> ListenerGroup:
    return ListenerGroup("127.0.0.1", Ports.of(80), 0.0, state)


TABLES = {
    "an actor": (lifecycle.ACTOR_TRANSITIONS, life_in, ActorState, LifecycleEvent),
    "a program": (lifecycle.PROGRAM_TRANSITIONS, program_in, ProgramState, ProgramEvent),
    "a listener": (registry.TRANSITIONS, listener_in, ListenerState, ListenerEvent),
}
PRODUCT = [
    (subject, state, event)
    for subject, (_table, _made, states, events) in TABLES.items()
    for state in states
    for event in events
]


@table(("subject", "state", "event"), PRODUCT)
def test_the_table_says_what_may_happen_and_everything_else_changes_nothing(
    subject: str, state: StrEnum, event: StrEnum
) -> None:
    table: Any = TABLES[subject][0]
    made: Any = TABLES[subject][1]
    life = made(state)
    if (state, event) in table:
        life.transition(event)
        assert life.state is table[state, event]
        return
    with pytest.raises(IllegalTransitionError, match=f"{event} can't happen to {subject} that is {state}"):
        life.transition(event)
    assert life.state is state


@pytest.mark.parametrize(
    ("subject", "first", "last"),
    [
        ("an actor", {ActorState.STOPPED}, set()),
        ("a program", {ProgramState.STARTING}, set()),
        ("a listener", {ListenerState.RESERVED}, {ListenerState.CLOSED, ListenerState.HANDED_OVER}),
    ],
)
def test_every_state_can_be_reached_and_left(subject: str, first: set[StrEnum], last: set[StrEnum]) -> None:
    table: Any = TABLES[subject][0]
    states: Any = set(TABLES[subject][2])
    assert {state for state, _event in table} == states - last
    assert set(table.values()) | first == states


def test_a_stop_takes_a_handover_back_until_the_exec() -> None:
    for before in (ProgramState.HANDING_OVER, ProgramState.HANDED_OVER):
        life = program_in(before)
        assert life.is_ending
        assert not life.closes_listeners
        assert life.transition(ProgramEvent.STOP) is ProgramState.DRAINING
        assert life.closes_listeners
        assert life.transition(ProgramEvent.FINISHED) is ProgramState.STOPPED


def test_a_second_stop_ends_a_drain_at_once() -> None:
    life = program_in(ProgramState.RUNNING)
    assert life.transition(ProgramEvent.STOP) is ProgramState.DRAINING
    assert life.transition(ProgramEvent.STOP) is ProgramState.STOPPED


def test_a_life_from_start_to_stop() -> None:
    now = [10.0]
    life = Lifecycle(lambda: now[0])
    for moment, event, state in (
        (11.0, LifecycleEvent.START, ActorState.STARTING),
        (12.0, LifecycleEvent.HELLO, ActorState.RUNNING),
        (13.0, LifecycleEvent.STOP, ActorState.DRAINING),
        (14.0, LifecycleEvent.ENDED, ActorState.STOPPED),
    ):
        now[0] = moment
        life.transition(event)
        assert (life.state, life.since) == (state, moment)


def test_the_error_of_a_death_stays_until_it_runs_again() -> None:
    life = life_in(ActorState.RUNNING)
    life.transition(LifecycleEvent.DIED, "was killed by SIGKILL")
    assert life.runtime(None).error == "was killed by SIGKILL"
    life.transition(LifecycleEvent.START)
    assert life.error == "was killed by SIGKILL"
    life.transition(LifecycleEvent.HELLO)
    assert life.error is None


def test_since_stays_while_a_failed_one_fails_again() -> None:
    now = [1.0]
    life = Lifecycle(lambda: now[0])
    life.transition(LifecycleEvent.REFUSED, "the port is in use")
    now[0] = 2.0
    life.transition(LifecycleEvent.REFUSED, "still in use")
    assert (life.since, life.error) == (1.0, "still in use")


def test_delays_begin_at_once_and_double_up_to_thirty_seconds() -> None:
    backoff = Backoff()
    delays = [backoff.failed(0.0) for _ in range(12)]
    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


@pytest.mark.parametrize(("ran_for", "next_delay"), [(RESET_AFTER - 1, 0.2), (RESET_AFTER, 0.0)])
def test_a_long_run_resets_the_delays_and_a_short_one_does_not(ran_for: float, next_delay: float) -> None:
    backoff = Backoff()
    backoff.failed(0.0)
    backoff.failed(0.0)
    backoff.started(100.0)
    assert backoff.failed(100.0 + ran_for) == next_delay


def test_after_a_reset_earlier_failures_do_not_count() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.failed(0.0)
    backoff.reset()
    assert backoff.failed(0.0) == 0.0
