"""What the watchdog is not to believe in: a process that was killed and does not go, or that never came to be.

And what is logged of one that has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.process import Boot
from actors.supervision.processes.actor_specs import ActorSpec, SupervisionContext
from actors.supervision.processes.instance import SILENCE_MAX, START_LONGEST, START_MAX, STUCK_AFTER
from actors.supervision.processes.live_state_files import LiveStateFiles
from actors.supervision.processes.managed_actor import ManagedActor
from tests.kit.clocks import Clock
from tests.kit.tables import table


class Deaf:
    """A process that misses its deadline and survives every signal."""

    deadline = 0.0
    stopped = True
    pid = 4711
    ended = False

    def __init__(self, boot: Boot) -> None:
        self.instance = boot.instance
        self.killed = 0

    def kill(self) -> None:
        self.killed += 1


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000.0)


@pytest.fixture
def actor(clock: Clock) -> ManagedActor:
    return started(clock)


def started(clock: Clock) -> ManagedActor:
    """An actor that was just started."""
    loop = Loop(clock)
    exchange: Any = SimpleNamespace(
        set_current_instance=lambda _name, _instance: None,
        clear_current_instance=lambda _name: None,
        expect=lambda _name: None,
    )
    owner: Any = SimpleNamespace(
        label=lambda name, _index: name,
        actor_ready=lambda _actor, _instance: None,
        actor_up=lambda _actor: None,
        actor_down=lambda _actor: None,
    )
    spawner: Any = SimpleNamespace(spawn=lambda _entry, boot, _sockets, _observer: Deaf(boot))
    state = LiveStateFiles(Path("/dev/null"))
    context = SupervisionContext(loop, exchange, spawner, lambda name, *_: Boot(name, 1, "", ""), state)
    made = ManagedActor(ActorSpec("one", "a:B"), context, owner)
    made.start()
    loop.close()
    return made


def checker(actor: ManagedActor, clock: Clock) -> Callable[[float], bool]:
    def after(seconds: float) -> bool:
        clock.now += seconds
        actor._context.loop.now = clock.now
        actor.check()
        return actor.stuck

    return after


def test_a_silent_process_is_killed_and_is_stuck_only_when_that_does_not_help(
    actor: ManagedActor, clock: Clock
) -> None:
    after = checker(actor, clock)
    actor.hello(1, 4711)
    process: Any = actor._current.process if actor._current else None
    assert not after(SILENCE_MAX)
    assert process.killed == 0
    assert not after(1.0)
    assert process.killed == 1
    assert after(STUCK_AFTER)


def test_a_process_that_is_never_made_is_stuck(actor: ManagedActor, clock: Clock) -> None:
    after = checker(actor, clock)
    assert not after(START_MAX + 1.0)
    assert after(STUCK_AFTER)


def test_after_one_that_took_too_long_to_start_the_next_may_take_twice_as_long(
    actor: ManagedActor, clock: Clock
) -> None:
    after = checker(actor, clock)
    for allowed in (START_MAX, 2 * START_MAX, 4 * START_MAX, 8 * START_MAX, START_LONGEST, START_LONGEST):
        process: Any = actor._current.process if actor._current else None
        after(allowed)
        assert process.killed == 0
        after(1.0)
        assert process.killed == 1
        actor._current = actor._spawn()


def test_a_process_that_keeps_its_promise_is_never_stuck(actor: ManagedActor, clock: Clock) -> None:
    after = checker(actor, clock)
    actor.hello(1, 4711)
    process: Any = actor._current.process if actor._current else None
    for _ in range(5):
        process.deadline = clock.now + SILENCE_MAX
        process.stopped = False
        assert not after(SILENCE_MAX - 1.0)
    assert process.killed == 0


def test_a_process_that_is_ready_before_it_was_said_to_be_made_has_its_pid(actor: ManagedActor) -> None:
    process: Any = actor._current.process if actor._current else None
    process.pid = None
    actor.hello(1, 4712)
    assert (actor.runtime().state, actor.runtime().pid) == ("running", 4712)


@table(
    ("why", "level", "begins"),
    [
        ("", "ERROR", "one died"),
        ("SIGTERM", "WARNING", "one was terminated by SIGTERM, starting it again"),
        ("its joining a fleet", "INFO", "one starts again because of its joining a fleet"),
    ],
)
def test_the_level_of_an_end_is_by_who_has_ended_it(
    clock: Clock, caplog: pytest.LogCaptureFixture, why: str, level: str, begins: str
) -> None:
    actor = started(clock)
    caplog.set_level("INFO")
    caplog.clear()
    actor.hello(1, 4711)
    if why:
        actor.terminated(1, why)
    process: Any = actor._current.process if actor._current else None
    actor.process_ended(process, "ended with status 0")
    lines = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert lines == [(level, f"{begins}: process 4711 ended with status 0")]
