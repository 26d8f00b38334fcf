"""What workers of a proxy know of its own upstreams: each line has one writer, and nothing is lost with a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.pools.slot import STATES, UpstreamSlot
from actors.pools.state import OWN_TABLE, OwnStates, identity
from actors.pools.upstream import OWN_SPANS
from actors.state.live_state import LiveState
from actors.state.table import Table
from tests.kit.clocks import Clock
from tests.kit.live_state import Killed, Machine, dies_after
from tests.kit.upstreams import upstream_entry

ONE, OTHER = identity(upstream_entry(1)), identity(upstream_entry(2))


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def machine(tmp_path: Path, clock: Clock) -> Machine:
    return Machine(tmp_path / "state", clock)


def states(live: LiveState) -> OwnStates:
    return OwnStates(live, OWN_SPANS)


def fail(slot: UpstreamSlot, now: float, cause: str = "refused") -> None:
    slot.failed(now, "connect", "unreachable", cause)


def lines(live: LiveState) -> str:
    return repr(live.further(OWN_TABLE).made())


def test_what_a_process_knew_is_known_to_the_next_one_of_its_worker(machine: Machine, clock: Clock) -> None:
    before = machine.state()
    slot = states(before).slot(ONE, clock.now)
    slot.count_use(3, 10, 20)
    fail(slot, clock.now)
    machine.end(before)
    clock.now += 0.5
    after = machine.state()
    found = states(after).slot(ONE, clock.now)
    assert (found.state, found.since, found.last_error, found.failed_ever) == ("down", 1000.0, "refused", 1)
    assert (found.uses, found.ready_at) == ((3, 10, 20), 1001.0)
    assert states(after).slot(OTHER, clock.now).state == "unknown"
    assert lines(after) == "<Table: 2 lines>"


def test_an_attempt_that_was_under_way_has_ended_with_its_process(machine: Machine, clock: Clock) -> None:
    before = machine.state()
    one, other = (states(before).slot(each, clock.now) for each in (ONE, OTHER))
    fail(one, clock.now)
    one.begin_trial(clock.now, 1e6)
    other.doubt(clock.now, 1e6)
    machine.end(before)
    clock.now += 1
    after = states(machine.state())
    assert [after.slot(each, clock.now).eligible(clock.now) for each in (ONE, OTHER)] == [True, True]


def test_one_that_begins_while_the_one_before_drains_goes_on_with_a_copy(machine: Machine, clock: Clock) -> None:
    before = machine.state()
    drains = states(before).slot(ONE, clock.now)
    fail(drains, clock.now)
    drains.count_use(1, 2, 3)
    between = machine.state()
    serves = states(between).slot(ONE, clock.now)
    assert (serves.state, serves.uses) == ("down", (1, 2, 3))
    serves.succeeded(clock.now)
    drains.count_use(1, 0, 0)
    assert (drains.state, serves.uses) == ("down", (1, 2, 3))
    machine.end(before)
    machine.end(between)
    after = machine.state()
    assert (states(after).slot(ONE, clock.now).state, lines(after)) == ("up", "<Table: 2 lines>")
    machine.end(after)
    again = machine.state()
    states(again).slot(OTHER, clock.now)
    assert states(again).slot(ONE, clock.now).state == "up"


def test_each_worker_knows_what_it_has_found_out_itself(machine: Machine, clock: Clock) -> None:
    one, other = states(machine.state()), states(machine.state(worker=1))
    fail(one.slot(ONE, clock.now), clock.now)
    assert other.slot(ONE, clock.now).state == "unknown"


def test_nothing_is_known_of_one_that_was_removed_and_its_users_write_no_line(machine: Machine, clock: Clock) -> None:
    live = machine.state()
    own = states(live)
    slot = own.slot(ONE, clock.now)
    fail(slot, clock.now)
    slot.part()
    own.remove(slot)
    again = own.slot(ONE, clock.now)
    slot.count_use(1, 0, 0)
    assert (slot.state, again.state, again.uses, lines(live)) == ("down", "unknown", (0, 0, 0), "<Table: 1 lines>")


def test_a_process_that_counts_alone_knows_its_own(clock: Clock) -> None:
    slot = states(LiveState(clock)).slot(ONE, clock.now)
    fail(slot, clock.now)
    assert (slot.state, slot.since) == ("down", 1000.0)


@pytest.mark.parametrize("drains", [False, True])
def test_a_kill_at_any_write_of_a_start_loses_nothing(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, drains: bool
) -> None:
    """Of one that follows another which has ended, or which drains."""
    made = Table.__init__
    for writes in range(200):
        machine = Machine(tmp_path / str(writes), clock)
        before = machine.state()
        slot = states(before).slot(ONE, clock.now)
        slot.count_use(1, 2, 3)
        fail(slot, clock.now)
        if not drains:
            machine.end(before)

        def dying(table: Table, *given: Any, writes: int = writes) -> None:
            made(table, *given)
            table.words = dies_after(table.words, [writes])

        between = machine.state()
        with monkeypatch.context() as patched:
            patched.setattr(Table, "__init__", dying)
            try:
                states(between).slot(ONE, clock.now)
                finished = True
            except Killed:
                finished = False
        machine.end(between)
        machine.end(before)
        found = states(machine.state()).slot(ONE, clock.now)
        assert (found.state, found.failed_ever, found.last_error, found.uses) == ("down", 1, "refused", (1, 2, 3))
        if finished:
            assert writes > 0
            return
    pytest.fail("a start has more writes than were tried")


def test_a_kill_at_any_write_of_a_failure_or_success_leaves_a_state_that_goes_on(
    machine: Machine, clock: Clock
) -> None:
    for what in ("failed", "succeeded", "suspect"):
        for writes in range(60):
            before = machine.state()
            slot = states(before).slot(ONE, clock.now)
            if what == "succeeded":
                fail(slot, clock.now)
            slot._words = dies_after(slot._words, [writes])  # type: ignore[arg-type, assignment]
            try:
                if what == "failed":
                    fail(slot, clock.now, "torn")
                elif what == "succeeded":
                    slot.succeeded(clock.now)
                else:
                    slot.suspect(clock.now, "torn", 7.0)
                finished = True
            except Killed:
                finished = False
            machine.end(before)
            live = machine.state()
            found = states(live).slot(ONE, clock.now)
            assert found.state in STATES
            clock.now += 100
            assert found.eligible(clock.now), (what, writes)
            fail(found, clock.now)
            assert not found.eligible(clock.now)
            clock.now += 100
            found.succeeded(clock.now)
            assert (found.state, found.eligible(clock.now), found.last_error) == ("up", True, None)
            machine.end(live)
            if finished:
                break
        else:
            pytest.fail("there are more writes than were tried")
