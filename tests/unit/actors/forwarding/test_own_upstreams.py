"""What a proxy knows of its own upstreams and their sessions goes on with the next process, by a clock set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.common import UPSTREAM_DOWN, UPSTREAMS_UNREACHABLE
from actors.bus.messages.specs import UpstreamsSpec
from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.context import ForwardingContext
from actors.forwarding.upstreams.upstream_set import UpstreamSet
from actors.pools.state import OWN_TABLE
from actors.state.table import FOREVER, UNTIL
from tests.kit.forwarding_rig import LOOPBACK_ALLOWED, spec
from tests.kit.live_state import Machine
from tests.kit.upstreams import upstream_entry, upstream_list


class Processes:
    """The processes of one proxy, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.now = 1_000.0
        self.machine = Machine(folder, lambda: self.now)
        self.loops: list[Loop] = []

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for loop in self.loops:
            loop.now = self.now

    def begin(self, worker: int = 0) -> ForwardingContext:
        loop = Loop(lambda: self.now)
        self.loops.append(loop)
        return ForwardingContext(loop, lambda _row: None, 10, 60.0, state=self.machine.state(worker=worker))

    def end(self, context: ForwardingContext) -> None:
        """It has been killed."""
        self.machine.end(context.state)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path / "state")
    yield made
    for loop in made.loops:
        loop.close()


UPSTREAMS = upstream_list(*(upstream_entry(port) for port in (1001, 1002, 1003)))
SEVEN = Parameters("7", 60.0)


def configured(context: ForwardingContext, upstreams: UpstreamsSpec = UPSTREAMS, workers: int = 1) -> UpstreamSet:
    context.configure(spec(1, upstreams=upstreams, workers=workers), LOOPBACK_ALLOWED)
    assert context.upstreams is not None
    return context.upstreams


def states(upstreams: UpstreamSet) -> list[str]:
    return [each.state for each in upstreams.members]


def chosen(upstreams: UpstreamSet, now: float) -> int:
    """The upstream of a session."""
    found = upstreams._sessions.choose("alice\0007", SEVEN, lambda _each: True, lambda each: each.state != "down", now)
    return -1 if found is None else found.index


def test_a_session_that_has_moved_stays_and_an_upstream_that_is_down_is_known(processes: Processes) -> None:
    context = processes.begin()
    before = configured(context)
    own = before.members[chosen(before, processes.now)]
    own.failed(processes.now, "refused")
    own.acquire()
    own.count_bytes(5, 7)
    other = chosen(before, processes.now)
    assert other != own.index
    processes.end(context)
    processes.pass_time(10)
    context = processes.begin()
    after = configured(context)
    known = after.members[own.index]
    assert (known.state, known.last_error, known.failures, known.uses) == ("down", "refused", 1, (1, 5, 7))
    assert (UPSTREAM_DOWN, own.name) in context.problems._active
    assert chosen(after, processes.now) == other
    known.succeeded(processes.now)
    assert chosen(after, processes.now) == own.index


def test_that_none_can_be_reached_is_known_and_over_with_the_first_one_that_works(processes: Processes) -> None:
    context = processes.begin()
    for each in configured(context).members:
        each.failed(processes.now, "refused")
    processes.end(context)
    context = processes.begin()
    after = configured(context)
    assert {key for key, _subject in context.problems._active} == {UPSTREAM_DOWN, UPSTREAMS_UNREACHABLE}
    after.succeeded(after.members[0])
    assert (UPSTREAMS_UNREACHABLE, "") not in context.problems._active


def test_what_is_known_waits_until_the_upstreams_are_configured(processes: Processes) -> None:
    context = processes.begin()
    configured(context).members[1].failed(processes.now, "refused")
    processes.end(context)
    context = processes.begin()
    context.configure(spec(1), LOOPBACK_ALLOWED)
    processes.end(context)
    assert states(configured(processes.begin())) == ["unknown", "down", "unknown"]


def test_nothing_is_known_of_an_upstream_that_was_removed_and_comes_back(processes: Processes) -> None:
    context = processes.begin()
    configured(context).members[1].failed(processes.now, "refused")
    two = upstream_list(*UPSTREAMS.entries[::2])
    assert states(configured(context, two)) == ["unknown"] * 2
    assert states(configured(context)) == ["unknown"] * 3
    processes.end(context)
    assert states(configured(processes.begin())) == ["unknown"] * 3


def test_a_process_ends_what_is_known_of_upstreams_and_workers_that_went_while_none_was_there(
    processes: Processes,
) -> None:
    def lines() -> int:
        table = context.state.further(OWN_TABLE).made()
        assert table is not None
        return sum(table.words[line + UNTIL] == FOREVER for used in table.used() for line in used)

    two = upstream_list(*UPSTREAMS.entries[::2])
    found = []
    for worker, upstreams, workers in ((0, UPSTREAMS, 2), (1, UPSTREAMS, 2), (0, two, 2), (0, two, 1)):
        context = processes.begin(worker)
        configured(context, upstreams, workers)
        found.append(lines())
        processes.end(context)
    assert found == [3, 6, 4, 2]
    context = processes.begin()
    configured(context)
    configured(processes.begin(), two)
    assert lines() == 5, "one that drains keeps its own"


def test_another_password_gets_a_trial_at_once(processes: Processes) -> None:
    context = processes.begin()
    configured(context).members[0].failed(processes.now, "refused")
    named = upstream_list(upstream_entry(1001, password="other"), *UPSTREAMS.entries[1:])
    after = configured(context, named).members[0]
    assert (after.state, after.eligible(processes.now)) == ("down", True)
