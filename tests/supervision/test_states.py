"""The life of an actor and its restart delays, as tables."""

from __future__ import annotations

import pytest

from actors.supervision.processes.backoff import FORGIVEN_AFTER, Backoff
from actors.supervision.processes.lifecycle import TRANSITIONS, IllegalTransitionError, Lifecycle, LifecycleEvent, State


def life_in(state: State) -> Lifecycle:
    life = Lifecycle(lambda: 1.0)
    life.state = state
    return life


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("happening", LifecycleEvent)
def test_the_table_says_what_may_happen_and_everything_else_changes_nothing(
    state: State, happening: LifecycleEvent
) -> None:
    life = life_in(state)
    if (state, happening) in TRANSITIONS:
        assert life.transition(happening) is TRANSITIONS[state, happening]
        return
    with pytest.raises(IllegalTransitionError, match=f"{happening} can't happen to an actor that is {state}"):
        life.transition(happening)
    assert life.state is state


def test_every_state_can_be_reached_and_left() -> None:
    assert {state for state, _happening in TRANSITIONS} == set(State)
    assert set(TRANSITIONS.values()) == set(State)


def test_a_life_from_start_to_stop() -> None:
    now = [10.0]
    life = Lifecycle(lambda: now[0])
    for moment, happening, state in (
        (11.0, LifecycleEvent.START, State.STARTING),
        (12.0, LifecycleEvent.HELLO, State.RUNNING),
        (13.0, LifecycleEvent.STOP, State.DRAINING),
        (14.0, LifecycleEvent.ENDED, State.STOPPED),
    ):
        now[0] = moment
        life.transition(happening)
        assert (life.state, life.since) == (state, moment)


def test_the_error_of_a_death_stays_until_it_runs_again() -> None:
    life = life_in(State.RUNNING)
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


@pytest.mark.parametrize(("ran_for", "next_delay"), [(FORGIVEN_AFTER - 1, 0.2), (FORGIVEN_AFTER, 0.0)])
def test_a_long_run_forgives_and_a_short_one_does_not(ran_for: float, next_delay: float) -> None:
    backoff = Backoff()
    backoff.failed(0.0)
    backoff.failed(0.0)
    backoff.started(100.0)
    assert backoff.failed(100.0 + ran_for) == next_delay


def test_somebody_who_wants_it_now_does_not_wait_for_earlier_failures() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.failed(0.0)
    backoff.forgive()
    assert backoff.failed(0.0) == 0.0
