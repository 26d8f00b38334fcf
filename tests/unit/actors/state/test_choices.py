"""What processes choose of a key together, and what remains of those that end."""

from __future__ import annotations

from actors.state.choices import SharedChoices
from actors.state.counts import LiveState
from tests.kit.clocks import Clock
from tests.kit.live_state import Machine


def test_the_last_choice_is_that_of_all_until_its_end(machine: Machine, clock: Clock) -> None:
    one, other = (SharedChoices(machine.state(), "sessions") for _ in range(2))
    assert one.choice(b"7") == (0, 0.0)
    one.keep(b"7", 11, clock.now + 60)
    assert other.choice(b"7") == (11, clock.now + 60)
    other.keep(b"7", 12, clock.now + 30)
    assert one.choice(b"7") == (12, clock.now + 30)
    assert one.choice(b"8") == (0, 0.0)
    assert SharedChoices(machine.state(), "pauses").choice(b"7") == (0, 0.0)
    clock.now += 31
    assert one.choice(b"7")[1] < clock.now
    one.keep(b"7", 13, clock.now + 1)
    assert other.choice(b"7") == (13, clock.now + 1)


def test_choices_outlive_the_process_and_need_one_line_each(machine: Machine, clock: Clock) -> None:
    state = machine.state()
    for value in range(1, 9):
        SharedChoices(state, "sessions").keep(b"7", value, clock.now + 60)
    machine.end(state)
    after = machine.state()
    assert SharedChoices(after, "sessions").choice(b"7")[0] == 8
    assert repr(after.proxy.present()) == "<Table: 1 lines>"


def test_a_choice_that_cannot_be_shared_holds_alone(clock: Clock) -> None:
    alone = SharedChoices(LiveState(clock), "sessions")
    alone.keep(b"7", 11, clock.now + 60)
    assert alone.choice(b"7") == (11, clock.now + 60)
