"""One actor under supervision, whatever its kind: its processes, its state, its back-off, its orderly end.

An actor has one *current* process. At a restart a *successor* is started beside it, on the same socket; at its hello
it becomes current and the older one is asked to drain. Processes that drain are *leaving*: they live until they have
finished or their time is up, and what becomes of them doesn't matter to the actor any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from socket import socket
from typing import Any, Protocol

from actors.bus.loop import Loop, Timer
from actors.bus.mailbox import MailboxRouter, address_of
from actors.bus.messages.common import ApplySettings, Done, Failed, Stop
from actors.bus.messages.fleet import Runtime
from actors.process import ORPHAN_GRACE, Boot
from actors.supervision.actor_settings import ActorSettings
from actors.supervision.callbacks import CountdownLatch
from actors.supervision.processes.backoff import Backoff
from actors.supervision.processes.lifecycle import Lifecycle, LifecycleEvent, State
from actors.supervision.processes.spawner import ActorProcess, Spawner
from actors.supervision.upgrade.handover import Predecessor

log = logging.getLogger(__name__)

SILENCE_MAX = 10.0
"""Seconds beyond what its pulse has promised after which an actor counts as hung and is killed."""
START_MAX = 30.0
"""Seconds that a new process may take to its hello."""
STUCK_AFTER = 5.0
"""Seconds after which a process that was killed should be gone: then only a restart of everything may help."""
STOP_ANSWER_MAX = 1.0
"""Seconds that an actor may take to stop accepting, once it was asked to stop."""
APPLY_MAX = 1.0
"""Seconds that an actor may take to acknowledge that it has applied settings."""

Outcome = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """How processes of an actor are made.

    `settings` names the groups of the settings that it gets; `sockets` gives the listening sockets at a start.
    """

    name: str
    actor_class: str
    settings: tuple[str, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    sockets: Callable[[], list[socket]] = list


class ActorObserver(Protocol):
    """What a managed actor tells the fleet, and asks it."""

    def label(self, name: str) -> str:
        """What people call the actor `name`."""

    def actor_ready(self, actor: ManagedActor, instance: int) -> None:
        """A process said hello and will be current next; this is the time to configure it."""

    def actor_up(self, actor: ManagedActor) -> None:
        """It runs."""

    def actor_down(self, actor: ManagedActor) -> None:
        """It died; `actor.life.error` says how."""

    def actor_ended(self, actor: ManagedActor) -> None:
        """It has stopped as it was asked to."""

    def actor_due(self, actor: ManagedActor) -> None:
        """Its back-off is over: start it if it is still wanted."""


@dataclass(slots=True)
class SupervisionContext:
    """What all managed actors share. `new_boot(name, settings, params)` gives every process its own instance number."""

    loop: Loop
    router: MailboxRouter
    spawner: Spawner
    new_boot: Callable[[str, dict[str, Any], dict[str, Any]], Boot]
    settings: ActorSettings = field(default_factory=ActorSettings)


@dataclass(slots=True, eq=False)
class _Instance:
    process: ActorProcess
    asked: float
    settings: dict[str, Any] = field(repr=False)
    """What it was sent, at its start or later."""
    heard: float | None = None
    leaves: bool = False
    """Has it answered that it accepts nothing new?"""
    terminated: bool = False
    """A SIGTERM to this process alone asked it to end."""

    def feel(self, now: float) -> None:
        """Its pulse: who works has been silent since the promise ran out, who waits is well unless it was stopped."""
        promise = self.process.promise
        if self.heard is None:
            return
        if promise <= now:
            self.heard = max(self.heard, promise)
        elif now - self.heard > SILENCE_MAX / 2 and not self.process.stopped:
            self.heard = now

    def overdue(self, now: float) -> float:
        """Seconds that it has been silent for longer than it may; negative while it may."""
        since, allowed = (self.asked, START_MAX) if self.heard is None else (self.heard, SILENCE_MAX)
        return now - since - allowed


class ManagedActor:
    """See the module. Its methods never block; `now` is the loop's time."""

    def __init__(self, spec: ActorSpec, context: SupervisionContext, observer: ActorObserver) -> None:
        self.spec = spec
        self.life = Lifecycle(time.time)
        self.backoff = Backoff()
        self._context = context
        self._observer = observer
        self._current: _Instance | None = None
        self._successor: _Instance | None = None
        self._leaving: list[_Instance] = []
        self._retry: Timer | None = None
        self._replaced: list[Outcome] = []

    @property
    def name(self) -> str:
        """Its name on the bus."""
        return self.spec.name

    @property
    def label(self) -> str:
        """What people call it; a proxy's name may change."""
        return self._observer.label(self.name)

    @property
    def waiting(self) -> bool:
        """Does its back-off run?"""
        return self._retry is not None

    @property
    def instance(self) -> int | None:
        """The instance of its current process."""
        return self._current.process.instance if self._current else None

    def runtime(self) -> Runtime:
        """What is so with it."""
        shown = self._current or (self._leaving[-1] if self._leaving else None)
        return self.life.runtime(shown.process.pid if shown else None)

    # --- what the fleet orders ---

    def start(self) -> None:
        """Make a process of it."""
        self._no_retry()
        if self.life.state is State.FAILED:
            self.life.restarts += 1
        self.life.transition(LifecycleEvent.START)
        self.backoff.started(self._context.loop.now)
        self._context.router.expect(self.name)
        self._current = self._spawn()
        if self._current is None:
            self._failed(LifecycleEvent.DIED, "could not be started: out of descriptors")

    def refused(self, error: str) -> None:
        """It can't be started, since its socket can't be bound. Tried again after a while."""
        self._failed(LifecycleEvent.REFUSED, error)

    def replace(self, outcome: Outcome) -> None:
        """A new process in place of the current one, without a gap. `outcome` gets `Done` or `Failed`."""
        self._replaced.append(outcome)
        if self.life.state is State.RUNNING and self._successor is None:
            self._successor = self._spawn()
            if self._successor is None:
                self._tell_outcome(Failed("no process can be made: out of descriptors"))

    def stop(self, drain: float, quiet: Callable[[], None]) -> None:
        """End it in good order within `drain` seconds; `quiet` is called as soon as it accepts nothing new."""
        self._no_retry()
        self._tell_outcome(Failed("the actor is being stopped"))
        self._context.router.clear_current_instance(self.name)
        if self.life.state is State.FAILED:
            self.life.transition(LifecycleEvent.STOP)
        elif self.life.state in (State.STARTING, State.RUNNING):
            self.life.transition(LifecycleEvent.STOP)
            generations = [each for each in (self._current, self._successor) if each is not None]
            self._current = self._successor = None
            for each in generations:
                self._dismiss(each, drain, quiet)
            return
        quiet()

    def hand_over(self) -> list[Predecessor]:
        """Its processes that serve or drain, for the next program. What has not begun to serve is killed."""
        present = [each for each in (self._current, self._successor) if each is not None]
        for each in present:
            if each.heard is None:
                each.process.kill()
        return [
            Predecessor(self.name, each.process.instance, each.process.pid, lifeline, each.leaves)
            for each in self._all()
            if each.heard is not None and each.process.pid is not None and not each.process.ended
            if (lifeline := each.process.take_lifeline()) >= 0  # it was let go already
        ]

    def apply_settings(self, latch: CountdownLatch) -> None:
        """Send its process the groups that have changed since it got them; `latch` waits for that."""
        current, settings = self._current, self._context.settings.of(self.spec.settings)
        if current is None or self.life.state is not State.RUNNING:
            return
        changed = {name: group for name, group in settings.items() if current.settings.get(name) != group}
        if changed:
            current.settings = settings
            applied = latch.add()
            self._context.router.ask(self.name, ApplySettings(changed), lambda _reply: applied(), APPLY_MAX)

    def hasten(self) -> None:
        """No more time: what still lives of it is killed."""
        for each in self._all():
            each.process.kill()

    def forgive(self) -> None:
        """Somebody wants it now: don't wait for the back-off."""
        self._no_retry()
        self.backoff.forgive()

    # --- what comes from its processes ---

    def hello(self, instance: int, pid: int) -> None:
        """A process is ready for work. It may say so before the zygote has said that it was made."""
        generation = self._find(instance)
        if generation is None or generation in self._leaving or generation.heard is not None:
            return
        generation.heard = self._context.loop.now
        if generation.process.pid is None:
            generation.process.pid = pid
        self._observer.actor_ready(self, instance)
        self._context.router.set_current_instance(self.name, instance)
        if generation is self._successor:
            self._take_over(generation)
        elif generation is self._current:
            self.life.transition(LifecycleEvent.HELLO)
        self._tell_outcome(Done())
        self._observer.actor_up(self)

    def pardon(self) -> None:
        """The supervisor itself was held up: nobody's silence until now counts."""
        for each in self._all():
            each.asked = self._context.loop.now
            each.heard = each.heard and self._context.loop.now

    def check(self) -> None:
        """Feel the pulse of its processes, and kill what hangs."""
        now = self._context.loop.now
        for each in (self._current, self._successor):
            if each is None:
                continue
            each.feel(now)
            if each.overdue(now) > 0:
                silent = now - (each.heard or each.asked)
                log.error(
                    "%s (pid %s) missed its liveness deadline (silent for %.0f s); killing it",
                    self.label,
                    each.process.pid,
                    silent,
                )
                each.process.kill()

    @property
    def stuck(self) -> bool:
        """Is one of its processes still not gone, long after it was killed for its silence?"""
        now = self._context.loop.now
        return any(each.overdue(now) > STUCK_AFTER for each in (self._current, self._successor) if each is not None)

    def process_started(self, process: ActorProcess) -> None:
        """It has a pid; its time to hello begins."""
        generation = self._find(process.instance)
        if generation is not None:
            generation.asked = self._context.loop.now

    def process_ended(self, process: ActorProcess, how: str) -> None:
        """One of its processes is gone."""
        generation = self._find(process.instance)
        if generation is None:
            return
        if generation in self._leaving:
            self._left(generation)
        elif generation is self._successor:
            self._successor = None
            log.error("%s (pid %s) %s at its start; the older process goes on", self.label, process.pid, how)
            self._tell_outcome(Failed(f"the new process {how}"))
        else:
            self._died(f"its process {how}" if process.pid is None else f"process {process.pid} {how}")

    # --- inside ---

    def _spawn(self) -> _Instance | None:
        settings = self._context.settings.of(self.spec.settings)
        boot = self._context.new_boot(self.name, settings, self.spec.params)
        try:
            process = self._context.spawner.spawn(self.spec.actor_class, boot, self.spec.sockets(), self)
        except OSError as error:
            log.error("%s can't be started: %s", self.label, error)
            return None
        return _Instance(process, self._context.loop.now, settings)

    def _take_over(self, successor: _Instance) -> None:
        older, self._current, self._successor = self._current, successor, None
        self.life.renewed()
        self.backoff.started(self._context.loop.now)
        if older is not None:
            self._dismiss(older, self.drain, _nothing)

    drain = 10.0
    """Seconds that the older process has after a restart; the fleet keeps it at `server.drain_timeout`."""

    def _dismiss(self, generation: _Instance, drain: float, quiet: Callable[[], None]) -> None:
        self._leaving.append(generation)
        process = generation.process
        if generation.heard is None:
            process.kill()  # it has not begun to serve anybody
            quiet()
            return

        def heard(reply: object) -> None:
            generation.leaves = isinstance(reply, Done)
            quiet()

        self._context.router.ask(address_of(self.name, process.instance), Stop(drain), heard, STOP_ANSWER_MAX)
        self._context.loop.call_later(drain + ORPHAN_GRACE, process.let_go)
        self._context.loop.call_later(drain + 2 * ORPHAN_GRACE, process.kill)

    def terminated(self) -> None:
        """An operator ends the current process by a SIGTERM; another one takes its place."""
        if self._current is not None:
            self._current.terminated = True

    def _died(self, how: str) -> None:
        if self._current is not None and self._current.terminated:
            log.warning("%s was terminated by SIGTERM, starting it again: %s", self.label, how)
        else:
            log.error("%s died: %s", self.label, how)
        self._current = None
        self._failed(LifecycleEvent.DIED, how)

    def _failed(self, happening: LifecycleEvent, error: str) -> None:
        self.life.transition(happening, error)
        self._context.router.clear_current_instance(self.name)
        successor, self._successor = self._successor, None
        delay = self.backoff.failed(self._context.loop.now)
        if successor is not None or delay == 0.0:
            self._context.router.expect(self.name)
        self._observer.actor_down(self)
        if successor is not None:  # a restart was under way: its process is the next one
            self.life.transition(LifecycleEvent.START)
            self.life.restarts += 1
            self._current = successor
            return
        self._tell_outcome(Failed(error))
        self._retry = self._context.loop.call_later(delay, self._due)

    def _due(self) -> None:
        self._retry = None
        self._observer.actor_due(self)

    def _left(self, generation: _Instance) -> None:
        self._leaving.remove(generation)
        if self.life.state is State.DRAINING and not self._leaving:
            self.life.transition(LifecycleEvent.ENDED)
            self._observer.actor_ended(self)

    def _find(self, instance: int) -> _Instance | None:
        return next((each for each in self._all() if each.process.instance == instance), None)

    def _all(self) -> list[_Instance]:
        present = [each for each in (self._current, self._successor) if each is not None]
        return present + self._leaving

    def _no_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _tell_outcome(self, message: Done | Failed) -> None:
        waiting, self._replaced = self._replaced, []
        for outcome in waiting:
            outcome(message)

    def __repr__(self) -> str:
        return f"<Managed {self.name} {self.life.state} {self._all()}>"


def _nothing() -> None:
    """Nobody waits for the older process to be quiet: the newer one accepts already."""
