"""One actor under supervision, whatever its kind: its processes, its state, its back-off, its orderly end.

An actor has one *current* process. At a restart a *successor* is started beside it, on the same socket; at its hello
it becomes current and the older one is asked to drain. A draining process lives until it has finished or its time is
up, and its end doesn't change the state of an actor that has a current one.

The name of an actor leads to its process on the bus, or to that of its lowest worker that serves. An actor has one
worker, a proxy may have several, which share a route. When the one that the name leads to dies, another one that serves
takes over in the same turn; requests wait only where none serves and one is expected.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from actors.bus.loop import Timer
from actors.bus.mailbox import Reply, address_of
from actors.bus.messages.common import BY_SIGNAL, ApplySettings, Done, Failed
from actors.bus.messages.supervision import Runtime
from actors.supervision.callbacks import CountdownLatch, noop
from actors.supervision.handover import Predecessor
from actors.supervision.lifecycle import ActorState, Backoff, Lifecycle, LifecycleEvent
from actors.supervision.processes.actor_specs import NO_PARAMS, ActorSpec, SupervisionContext, WorkerId
from actors.supervision.processes.instance import START_MAX, STUCK_AFTER, ActorRoute, Instance
from actors.supervision.processes.spawner import ActorProcess

log = logging.getLogger(__name__)


class ActorObserver(Protocol):
    """What a managed actor reports to, and where it gets its label."""

    def label(self, name: str, index: int | None = None) -> str:
        """What logs call the actor of this name, or one of its workers where there are several."""

    def actor_ready(self, actor: ManagedActor, instance: int) -> None:
        """A process is ready and will be current next; this is the time to configure it."""

    def actor_up(self, actor: ManagedActor) -> None:
        """It runs."""

    def actor_down(self, actor: ManagedActor) -> None:
        """It died; `actor.life.error` is the reason."""

    def actor_ended(self, actor: ManagedActor) -> None:
        """Its last process has drained and ended, and none is wanted; or it sleeps."""

    def actor_due(self, actor: ManagedActor) -> None:
        """Its back-off is over: start it if it is still desired."""


APPLY_MAX = 1.0
"""Seconds that an actor may take to acknowledge that it has applied settings."""


class ManagedActor:
    """See the module. Its methods never block; `now` is the loop's time."""

    drain = 10.0
    """Seconds that the older process has after a restart: `server.drain_timeout`, for actors that are restarted."""

    def __init__(
        self, spec: ActorSpec, context: SupervisionContext, observer: ActorObserver, route: ActorRoute | None = None
    ) -> None:
        """Workers of one proxy share a `route`."""
        self.spec = spec
        self.life = Lifecycle(time.time)
        self.backoff = Backoff()
        self._context = context
        self._observer = observer
        self._route = route or ActorRoute(context.router, spec.name)
        self._current: Instance | None = None
        self._successor: Instance | None = None
        self._draining: list[Instance] = []
        self._retry: Timer | None = None
        self._start_max = START_MAX
        self._replacing: list[Reply] = []

    @property
    def name(self) -> str:
        """Its name on the bus."""
        return self.spec.name

    @property
    def worker(self) -> WorkerId:
        """Which process of a proxy it is."""
        return self.spec.worker

    @property
    def label(self) -> str:
        """What logs call it; a proxy's name may change."""
        return self._observer.label(self.name, self.worker.index)

    @property
    def backs_off(self) -> bool:
        """True while it waits for the end of its back-off."""
        return self._retry is not None

    @property
    def instance(self) -> int | None:
        """The instance of its current process."""
        return self._current.process.instance if self._current else None

    @property
    def serving(self) -> int | None:
        """The instance of its current process once that is ready for work."""
        return self._current.process.instance if self._current and self._current.serves else None

    @property
    def is_settled(self) -> bool:
        """True if it has one process, which serves, and nothing is under way with it."""
        return self.serving is not None and self.life.state is ActorState.RUNNING and len(self._all()) == 1

    @property
    def drains(self) -> bool:
        """True while a process of it drains."""
        return bool(self._draining)

    def owns(self, instance: int) -> bool:
        """True if this is one of its processes, whatever that does."""
        return self._find(instance) is not None

    def runtime(self) -> Runtime:
        """Its actual state, with the pid of its current process or else of the last one that drains."""
        instance = self._current or (self._draining[-1] if self._draining else None)
        return self.life.runtime(instance.process.pid if instance else None)

    # --- orders ---

    def start(self, params: Mapping[str, Any] = NO_PARAMS) -> None:
        """Make a process of it. `params` are for this one alone, beside those of all."""
        self._cancel_retry()
        if self.life.state is ActorState.FAILED:
            self.life.restarts += 1
        self.life.transition(LifecycleEvent.START)
        self.backoff.started(self._context.loop.now)
        self._route.expect(self.worker.index)
        self._current = self._spawn(params)
        if self._current is None:
            self._failed(LifecycleEvent.DIED, "could not be started: out of descriptors")

    def refused(self, error: str) -> None:
        """It can't be started, since its socket can't be bound; its back-off begins."""
        self._failed(LifecycleEvent.REFUSED, error)

    def replace(self, reply: Reply) -> None:
        """A new process in place of the current one, without a gap. `reply` gets `Done` or `Failed`."""
        self._replacing.append(reply)
        if self.life.state is ActorState.RUNNING and self._successor is None:
            self._successor = self._spawn()
            if self._successor is None:
                self._reply_replaced(Failed("no process can be made: out of descriptors"))

    def stop(self, drain: float, quiet: Callable[[], None]) -> None:
        """End it in good order within `drain` seconds; `quiet` is called as soon as it accepts nothing new."""
        self._cancel_retry()
        self._reply_replaced(Failed("the actor is being stopped"))
        self._route.gone(self.worker.index)
        if self.life.state in (ActorState.FAILED, ActorState.SLEEPING):
            self.life.transition(LifecycleEvent.STOP)
        elif self.life.state in (ActorState.STARTING, ActorState.RUNNING):
            self.life.transition(LifecycleEvent.STOP)
            self._drain_all(drain, quiet)
            return
        quiet()

    def sleep(self, drain: float) -> None:
        """End it in good order: it accepts nothing already, and has no client."""
        self._route.gone(self.worker.index)
        self.life.transition(LifecycleEvent.SLEEP)
        self._drain_all(drain, noop)

    def hand_over(self) -> list[Predecessor]:
        """Its processes that serve or drain, for the next program. Those that don't serve yet are killed."""
        for each in self._accepting():
            if not each.serves:
                each.process.kill()
        return [
            Predecessor(self.name, each.process.instance, each.process.pid, lifeline, each.stopped_accepting)
            for each in self._all()
            if each.serves and each.process.pid is not None and not each.process.ended
            if (lifeline := each.process.detach_lifeline()) >= 0  # not closed yet
        ]

    def apply_settings(self, latch: CountdownLatch) -> None:
        """Send its process the groups that have changed since it got them; `latch` waits for that."""
        current, settings = self._current, self._context.settings.of(self.spec.settings)
        if current is None or self.life.state is not ActorState.RUNNING:
            return
        changed = {name: group for name, group in settings.items() if current.settings.get(name) != group}
        if changed:
            current.settings = settings
            applied = latch.add()
            to = address_of(self.name, current.process.instance)
            self._context.router.ask(to, ApplySettings(changed), lambda _reply: applied(), APPLY_MAX)

    def kill_all(self) -> None:
        """Kill its processes."""
        for each in self._all():
            each.process.kill()

    def reset_backoff(self) -> None:
        """End its back-off: it is to run now."""
        self._cancel_retry()
        self.backoff.reset()

    def terminated(self, instance: int, why: str) -> None:
        """This process ends, by a SIGTERM of an operator or for another reason; another one takes its place."""
        found = self._find(instance)
        if found is not None:
            found.terminated = why

    # --- what comes from its processes ---

    def hello(self, instance: int, pid: int) -> None:
        """A process is ready for work. Its hello may overtake the zygote's report that it was made."""
        found = self._find(instance)
        if found is None or found in self._draining or found.serves:
            return
        found.alive_at = self._context.loop.now
        if found.process.pid is None:
            found.process.pid = pid
        self._observer.actor_ready(self, instance)
        self._route.serves(self.worker.index, instance)
        if found is self._successor:
            self._promote(found)
        elif found is self._current:
            self.life.transition(LifecycleEvent.HELLO)
        self._reply_replaced(Done())
        self._observer.actor_up(self)

    def reset_liveness(self) -> None:
        """The supervisor itself was delayed: silence until now doesn't count."""
        for each in self._all():
            each.reset_liveness(self._context.loop.now)

    def check(self) -> None:
        """Kill the processes that hang."""
        now = self._context.loop.now
        for each in self._accepting():
            each.update_liveness(now)
            if each.seconds_overdue(now) > 0:
                silent = now - (each.alive_at or each.requested_at)
                text = "%s (pid %s) missed its liveness deadline (silent for %.0f s); killing it"
                log.error(text, self.label, each.process.pid, silent)
                self._start_max = each.next_start_max
                each.process.kill()

    @property
    def stuck(self) -> bool:
        """True if one of its processes still exists long after it was killed for its silence."""
        now = self._context.loop.now
        return any(each.seconds_overdue(now) > STUCK_AFTER for each in self._accepting())

    def process_started(self, process: ActorProcess) -> None:
        """It has a pid; its time to hello begins."""
        found = self._find(process.instance)
        if found is not None:
            found.requested_at = self._context.loop.now

    def process_ended(self, process: ActorProcess, how: str) -> None:
        """One of its processes has ended."""
        self.spec.on_end(process.instance)
        found = self._find(process.instance)
        if found is None:
            return
        if found in self._draining:
            self._drained(found)
        elif found is self._successor:
            self._successor = None
            log.error("%s (pid %s) %s at its start; the older process continues", self.label, process.pid, how)
            self._reply_replaced(Failed(f"the new process {how}"))
        else:
            self._died(f"its process {how}" if process.pid is None else f"process {process.pid} {how}")

    # --- inside ---

    def _spawn(self, params: Mapping[str, Any] = NO_PARAMS) -> Instance | None:
        settings = self._context.settings.of(self.spec.settings)
        boot = self._context.new_boot(self.name, settings, {**self.spec.params, **params})
        try:
            boot.params.update(self.spec.params_of(boot.instance))
            process = self._context.spawner.spawn(self.spec.actor_class, boot, self.spec.sockets(), self)
        except OSError as error:
            log.error("cannot start %s: %s", self.label, error)
            self.spec.on_end(boot.instance)
            return None
        return Instance(process, self._context.loop.now, settings, start_max=self._start_max)

    def _promote(self, successor: Instance) -> None:
        older, self._current, self._successor = self._current, successor, None
        self.life.renewed()
        self.backoff.started(self._context.loop.now)
        if older is not None:
            self._drain_instance(older, self.drain, noop)  # the successor accepts already

    def _drain_all(self, drain: float, quiet: Callable[[], None]) -> None:
        instances = self._accepting()
        self._current = self._successor = None
        for each in instances:
            self._drain_instance(each, drain, quiet)

    def _drain_instance(self, instance: Instance, drain: float, quiet: Callable[[], None]) -> None:
        self._draining.append(instance)
        instance.drain(self._context.router, self._context.loop, self.name, drain, quiet)

    def _died(self, how: str) -> None:
        why = "" if self._current is None else self._current.terminated
        if why == BY_SIGNAL:
            log.warning("%s was terminated by %s, starting it again: %s", self.label, why, how)
        elif why:
            log.info("%s starts again because of %s: %s", self.label, why, how)
        else:
            log.error("%s died: %s", self.label, how)
        self._current = None
        self._failed(LifecycleEvent.DIED, how)

    def _failed(self, event: LifecycleEvent, error: str) -> None:
        self.life.transition(event, error)
        self._route.gone(self.worker.index)
        successor, self._successor = self._successor, None
        delay = self.backoff.failed(self._context.loop.now)
        if successor is not None or delay == 0.0:
            self._route.expect(self.worker.index)
        if successor is None:  # before it is reported: who gets the report starts what does not wait
            self._retry = self._context.loop.call_later(delay, self._on_retry_timer)
        self._observer.actor_down(self)
        if successor is not None:  # a restart had begun: its process is the next one
            self.life.transition(LifecycleEvent.START)
            self.life.restarts += 1
            self._current = successor
            return
        self._reply_replaced(Failed(error))

    def _on_retry_timer(self) -> None:
        self._retry = None
        self._observer.actor_due(self)

    def _drained(self, instance: Instance) -> None:
        self._draining.remove(instance)
        if self._draining:
            return
        if self.life.state is ActorState.DRAINING:
            self.life.transition(LifecycleEvent.ENDED)
        if self.life.state in (ActorState.STOPPED, ActorState.SLEEPING):
            self._observer.actor_ended(self)

    def _find(self, instance: int) -> Instance | None:
        return next((each for each in self._all() if each.process.instance == instance), None)

    def _accepting(self) -> list[Instance]:
        return [each for each in (self._current, self._successor) if each is not None]

    def _all(self) -> list[Instance]:
        return self._accepting() + self._draining

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _reply_replaced(self, message: Done | Failed) -> None:
        waiting, self._replacing = self._replacing, []
        for reply in waiting:
            reply(message)

    def __repr__(self) -> str:
        return f"<ManagedActor {self.name} {self.life.state} {self._all()}>"
