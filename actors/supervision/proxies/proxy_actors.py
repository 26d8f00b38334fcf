"""The forwarding actors with their listening sockets, and how each step of `reconcile` is carried out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from socket import socket

from actors.bus.mailbox import address_of
from actors.bus.messages.common import Done, forwarding_name
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import ProxySpec
from actors.supervision.callbacks import CountdownLatch
from actors.supervision.handover import Predecessors
from actors.supervision.lifecycle import ActorState
from actors.supervision.listeners.bind import ListenError
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.processes.actor_specs import SupervisionContext, WorkerId, params_at_start, proxy_spec
from actors.supervision.processes.instance import ActorRoute
from actors.supervision.processes.managed_actor import ActorObserver, ManagedActor
from actors.supervision.proxies.desired_proxies import worker_count
from actors.supervision.proxies.reconcile import (
    ActualProxy,
    ActualState,
    Bind,
    Forget,
    SendConfiguration,
    Start,
    Step,
    StopProxy,
    StopWorker,
    Watch,
)
from actors.supervision.proxies.sleepers import Sleepers
from actors.supervision.settings_updates import SupervisionConfig
from config.net.names import Ports

log = logging.getLogger(__name__)

CONFIGURED_WITHIN = 4.0
"""Seconds that a change waits until processes have applied it; then the API has its reply all the same."""
APPLIED_WITHIN = 120.0
"""Seconds that a process may take to apply one before it gets it again: long policies take a busy one many."""

OTHERS_SERVE_WITHIN = 5.0
"""Seconds after the first worker of a proxy in which predecessors serve on, for the others to start."""


class ProxyActors:
    """`by_id` has the managed actors of each proxy that runs, or did until a moment ago: its workers, by index.

    `sleepers` are the proxies that sleep, `configuration` returns what a process of a proxy should be configured with
    now, None for one that is gone. `on_stop` is called with the id of a proxy that is not to run any more.
    """

    def __init__(
        self,
        context: SupervisionContext,
        observer: ActorObserver,
        actor_class: str,
        config: SupervisionConfig,
        listeners: ListenerRegistry,
        predecessors: Predecessors,
        sleepers: Sleepers,
        configuration: Callable[[str], Configure | None],
        on_stop: Callable[[str], None],
    ) -> None:
        self.by_id: dict[str, dict[int, ManagedActor]] = {}
        self._context = context
        self._observer = observer
        self._class = actor_class
        self._config = config
        self._listeners = listeners
        self._predecessors = predecessors
        self._sleepers = sleepers
        self._configuration = configuration
        self._on_stop = on_stop
        sleepers.awake = self
        self._configured: dict[WorkerId, Configure] = {}
        self._at_starts: dict[WorkerId, Configure] = {}
        self._routes: dict[str, ActorRoute] = {}
        self._waking: set[str] = set()
        """Proxies that wake, until their first worker serves: it counts that."""
        predecessors.on_process_end = self._process_ended

    def apply(self, config: SupervisionConfig) -> None:
        """Apply other settings: to drains at once, for the rest at the next starts."""
        self._config = config
        for actor in self.all():
            actor.drain = config.drain_timeout

    def all(self) -> Iterator[ManagedActor]:
        """Every worker of every proxy."""
        for workers in self.by_id.values():
            yield from workers.values()

    def of_proxy(self, proxy_id: str) -> list[ManagedActor]:
        """The workers of this proxy, by index."""
        workers = self.by_id.get(proxy_id, {})
        return [workers[index] for index in sorted(workers)]

    def actual_of(self, proxy_id: str) -> ActualProxy:
        """The actual state of one proxy."""
        workers = {
            index: ActualState(actor.life.state, self._configured.get(WorkerId(proxy_id, index)), actor.backs_off)
            for index, actor in self.by_id.get(proxy_id, {}).items()
        }
        asleep = proxy_id in self._sleepers and proxy_id not in self._sleepers.waking
        return ActualProxy(self._listeners.kept(proxy_id), workers, asleep)

    def execute(self, steps: Iterable[Step], latch: CountdownLatch) -> None:
        """Carry out the steps. `latch` waits until what has to stop accepting has stopped."""
        started: set[str] = set()
        not_bound: dict[str, str] = {}
        if left := self._carry_out(steps, latch, started, not_bound):
            not_bound = {}
            self._carry_out(left, latch, started, not_bound)  # those that change places have left theirs by now
        for proxy_id, error in not_bound.items():
            log.error("%s: %s", self._observer.label(forwarding_name(proxy_id)), error)
            self._actor(WorkerId(proxy_id)).refused(error)
        for proxy_id in started | not_bound.keys():
            self._sleepers.end(proxy_id)

    def _carry_out(
        self, steps: Iterable[Step], latch: CountdownLatch, started: set[str], not_bound: dict[str, str]
    ) -> list[Step]:
        """See `execute`. Returns those of proxies that are `not_bound`, by the error, and adds to what is `started`."""
        left: list[Step] = []
        for step in steps:
            match step:
                case StopProxy(proxy_id):
                    self.stop(proxy_id, latch.add())
                case StopWorker(worker):
                    self._configured.pop(worker, None)
                    self.by_id[worker.proxy_id][worker.index].stop(self._config.drain_timeout, latch.add())
                case Bind(proxy_id, address):
                    if error := self._bind(proxy_id, *address):
                        not_bound[proxy_id] = error
                        left.append(step)
                case Start(WorkerId(proxy_id)) | Watch(proxy_id) if proxy_id in not_bound:
                    left.append(step)
                case Start(worker):
                    started.add(worker.proxy_id)
                    self._start(worker)
                case Watch(proxy_id):
                    self._sleepers.listen(proxy_id)
                case SendConfiguration(worker, configure):
                    actor = self.by_id[worker.proxy_id][worker.index]
                    self.configure(actor, actor.instance or 0, configure, latch)
                case Forget(worker):
                    self._forget(worker)
        return left

    def settle_listeners(self, desired: Mapping[str, ProxySpec]) -> None:
        """Adapt the listeners, and nothing else, to changes of the desired state since a handover began.

        So the next program gets the sockets of proxies that were just made, and none of those that are gone.
        """
        wanted = {proxy_id: spec for proxy_id, spec in desired.items() if spec.active}
        for proxy_id in (self.by_id.keys() | self._sleepers.by_id.keys()) - wanted.keys():
            self._listeners.release(proxy_id)
        for proxy_id, spec in wanted.items():
            try:
                self._listeners.keep(proxy_id, *spec.address)
            except ListenError as error:
                log.info("%s: left to the next program: %s", self._observer.label(forwarding_name(proxy_id)), error)

    def is_starting(self, proxy_id: str) -> bool:
        """Whether a proxy waits for a process: for its first one, or for one that was never tried before."""
        lives = [actor.life for actor in self.of_proxy(proxy_id)]
        starting = [life for life in lives if life.state is ActorState.STARTING]
        return any(life.error is None for life in starting) or (
            bool(starting) and not any(life.state is ActorState.RUNNING for life in lives)
        )

    def drain_predecessors(self, actor: ManagedActor) -> None:
        """Of one that runs: at once when all workers serve, else in a moment, since the last may take long to start."""
        name, drain = actor.name, self._config.upgrade_drain
        if all(each.serving is not None for each in self.of_proxy(actor.worker.proxy_id)):
            self._predecessors.drain(name, drain)
        elif self._predecessors.has(name):
            self._context.loop.call_later(OTHERS_SERVE_WITHIN, lambda: self._predecessors.drain(name, drain))

    def stop(self, proxy_id: str, quiet: Callable[[], None]) -> None:
        """Have it drain and end, with its predecessors.

        When it has stopped accepting, its listener is closed and `quiet` is called.
        """
        self._sleepers.forget(proxy_id)
        self._waking.discard(proxy_id)
        self._listeners.defer_close(proxy_id)
        self._on_stop(proxy_id)
        self._predecessors.drain(forwarding_name(proxy_id), self._config.drain_timeout)
        if not self._context.state.has_living(proxy_id):
            self._context.state.remove(proxy_id)

        def close_listener() -> None:
            self._listeners.close_deferred(proxy_id)
            quiet()

        latch = CountdownLatch(close_listener)
        for actor in self.of_proxy(proxy_id):
            self.forget_configuration(actor)
            actor.stop(self._config.drain_timeout, latch.add())
        latch.release()

    def sleep(self, proxy_id: str) -> None:
        """Its processes have no client and accept nothing: have them end in good order. Its listener stays."""
        for actor in self.of_proxy(proxy_id):
            self.forget_configuration(actor)
            actor.sleep(self._config.drain_timeout)

    def slept(self, actor: ManagedActor) -> None:
        """The last process of a worker has ended, and the proxy sleeps: nothing of the worker is left."""
        workers = self.by_id.get(actor.worker.proxy_id, {})
        if workers.get(actor.worker.index) is actor:
            self._drop(actor.worker)

    def _start(self, worker: WorkerId) -> None:
        """The first worker of one that wakes gets what it needs to serve along with the request for its process.

        That it wakes is still to be counted when a process of that worker has ended before it served.
        """
        proxy_id, actor = worker.proxy_id, self._actor(worker)
        asleep = self._sleepers.by_id.get(proxy_id)
        if asleep is not None and worker.index == 0:
            actor.life.restarts = asleep.restarts
            self._waking.add(proxy_id)
        if worker.index == 0 and proxy_id in self._waking:
            actor.start({"asleep": True, **self._at_start(worker)})
        else:
            actor.start()

    def serves(self, actor: ManagedActor) -> None:
        """It runs: a proxy whose first worker does so is awake."""
        if actor.worker.index == 0:
            self._waking.discard(actor.worker.proxy_id)

    def _at_start(self, worker: WorkerId) -> dict[str, bytes]:
        configure = self._configuration(worker.proxy_id)
        if configure is None:
            return {}
        params = params_at_start(replace(configure, worker=worker.index, workers=worker_count(configure.spec)))
        if params:
            self._at_starts[worker] = configure
        return params

    def _numbered(self, worker: WorkerId, instance: int) -> dict[str, int]:
        """The number under which a process counts, which worker it is, and how many there are."""
        configure = self._configuration(worker.proxy_id)
        workers = 1 if configure is None else worker_count(configure.spec)
        number = self._context.state.begin(worker.proxy_id, instance)
        return {"number": number, "worker": worker.index, "workers": workers}

    def has_at_start(self, actor: ManagedActor, configure: Configure) -> bool:
        """Whether a process that is ready has this configuration already, since it was requested with it."""
        if self._at_starts.pop(actor.worker, None) != configure:
            return False
        self._configured[actor.worker] = configure
        return True

    def configure(
        self, actor: ManagedActor, instance: int, configure: Configure, latch: CountdownLatch | None = None
    ) -> None:
        """Send a process the configuration of its proxy, with the objects that have changed.

        `latch` waits a while until the process has those, and with several workers for all that changes. One that
        refuses it or never replies gets all of it again.
        """
        to, worker = address_of(actor.name, instance), actor.worker
        sent = replace(configure, worker=worker.index, workers=worker_count(configure.spec))
        known = self._configured.get(worker)
        if known is not None:
            sent = replace(sent, objects=_changes(known.objects, configure.objects), changes=True)
        waits = bool(sent.objects) or (known is not None and sent.workers > 1)
        if latch is None or not waits:
            if self._context.router.tell(to, sent):
                self._configured[worker] = configure
        else:
            self._configured[worker] = configure
            applied = latch.add()
            late = self._context.loop.call_later(CONFIGURED_WITHIN, applied)

            def on_reply(reply: object) -> None:
                late.cancel()
                if not isinstance(reply, Done):  # later changes are none of what it has
                    self._configured.pop(worker, None)
                applied()

            self._context.router.ask(to, sent, on_reply, APPLIED_WITHIN)

    def forget_configuration(self, actor: ManagedActor) -> None:
        """Its process died or drains, and the next one has no configuration."""
        self._configured.pop(actor.worker, None)
        self._at_starts.pop(actor.worker, None)

    def any_unconfigured(self) -> bool:
        """True if a process runs to which its configuration could not be sent."""
        return any(
            actor.life.state is ActorState.RUNNING and actor.worker not in self._configured for actor in self.all()
        )

    def _bind(self, proxy_id: str, host: str, ports: Ports) -> str:
        """Why it can't listen there; empty when it does."""
        self._sleepers.release(proxy_id)
        try:
            self._listeners.keep(proxy_id, host, ports)
        except ListenError as error:
            self._listeners.release(proxy_id)  # a sleeping one may still hold those before
            return error.error
        return ""

    def _actor(self, worker: WorkerId) -> ManagedActor:
        workers = self.by_id.setdefault(worker.proxy_id, {})
        actor = workers.get(worker.index)
        if actor is None:
            actor = workers[worker.index] = self._new_actor(worker)
            actor.drain = self._config.drain_timeout
        return actor

    def _new_actor(self, worker: WorkerId) -> ManagedActor:
        proxy_id = worker.proxy_id

        def sockets() -> list[socket]:
            return self._listeners.get(proxy_id)

        numbered, ended = partial(self._numbered, worker), partial(self._process_ended, proxy_id)
        spec = proxy_spec(self._class, worker, sockets, numbered, ended)
        route = self._routes.setdefault(proxy_id, ActorRoute(self._context.router, spec.name))
        return ManagedActor(spec, self._context, self._observer, route)

    def _process_ended(self, proxy_id: str, instance: int) -> None:
        """What it has counted ends with it; what all have counted ends with the last one of a proxy that has stopped.
        That of one that sleeps counts on, and is removed when its time is over."""
        state = self._context.state
        state.end(proxy_id, instance)
        if state.has_living(proxy_id):
            return
        if self._listeners.kept(proxy_id) is None:
            state.remove(proxy_id)
        elif proxy_id in self._sleepers:
            state.remove_spent(proxy_id)

    def _forget(self, worker: WorkerId) -> None:
        self._drop(worker)
        if worker.proxy_id not in self.by_id:
            self._on_stop(worker.proxy_id)

    def _drop(self, worker: WorkerId) -> None:
        workers = self.by_id[worker.proxy_id]
        del workers[worker.index]
        if not workers:
            del self.by_id[worker.proxy_id]
            self._routes.pop(worker.proxy_id, None)


def _changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> dict[str, bytes]:
    """See `Configure.objects`."""
    changed = {key: packed for key, packed in after.items() if before.get(key) != packed}
    return changed | dict.fromkeys(before.keys() - after.keys(), b"")
