"""What processes choose of a key together, and what remains of those that end."""

from __future__ import annotations

import pytest

from actors.state.choices import SharedChoices
from actors.state.live_state import LiveState
from tests.kit.clocks import Clock
from tests.kit.live_state import Killed, Machine, dies_after


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


def test_a_kill_at_any_write_of_a_choice_leaves_the_one_before_or_this_one(machine: Machine, clock: Clock) -> None:
    for chosen_before in (False, True):
        for writes in range(40):
            key = b"%d %d" % (chosen_before, writes)
            state, others = machine.state(), SharedChoices(machine.state(), "sessions")
            if chosen_before:
                others.keep(key, 11, clock.now + 60)
            table = state.proxy.made()
            assert table is not None
            table.words = dies_after(table.words, [writes])
            try:
                SharedChoices(state, "sessions").keep(key, 12, clock.now + 90)
                finished = True
            except Killed:
                finished = False
            machine.end(state)
            value, until = others.choice(key)
            assert (value, until > clock.now) in ((12, True), (11, True) if chosen_before else (0, False))
            others.keep(key, 13, clock.now + 60)
            assert SharedChoices(machine.state(), "sessions").choice(key) == (13, clock.now + 60)
            if finished:
                break
        else:
            pytest.fail("a choice has more writes than were tried")


def test_a_bucket_is_walked_once_until_another_process_claims_a_line_of_it(machine: Machine, clock: Clock) -> None:
    one, other = (SharedChoices(machine.state(), "sessions") for _ in range(2))
    one.keep(b"7", 11, clock.now + 60)
    table = one._live.made()
    assert table is not None
    walked: list[int] = []
    walks = table.all_lines
    table.all_lines = lambda key: walked.append(key) or walks(key)  # type: ignore[method-assign, func-returns-value]
    assert one.choice(b"7")[0] == 11
    other.keep(b"7", 12, clock.now + 60)
    assert [one.choice(b"7")[0] for _ in range(3)] == [12] * 3
    assert len(walked) <= 1
