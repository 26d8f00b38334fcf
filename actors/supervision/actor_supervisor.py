"""All actors together: their desired and actual state, and the messages that change either.

Fixed actors always run: the API, the metrics collector, the log indexer, the webhook sender, the resolver, and the TLS
terminator and the push of telemetry where they are configured; and the checks of pools while a proxy can use one
(`occasional_actor`), and a second resolver while one names name servers. Beside them runs one forwarding actor for
every proxy that is active, unless it sleeps; `reconciler` brings that about. The API's commands are handled in
`proxy_commands`, the actual state is reported by `runtime_report`.

They end in phases: senders of reports before their receivers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from actors.bus.events import Forwarder
from actors.bus.mailbox import Reply, refuse
from actors.bus.messages.common import (
    EGRESS,
    LAB,
    LOGS,
    METRICS,
    POOLS,
    PROXY_RESOLVER,
    RESOLVER,
    TELEMETRY,
    WEBHOOKS,
    Hello,
    Listening,
    ReportProblems,
    Terminated,
    actor_proxy,
    forwarding_name,
)
from actors.bus.messages.events import ReplayedEvents, ReplayEvents
from actors.bus.messages.forwarding import Configure, DrainEnded, Idle
from actors.bus.messages.specs import CheckPool, FleetObject, ProxySpec
from actors.bus.messages.supervision import DrainConnections, QueryRuntime, QueryWorkers, StartExplainer
from actors.supervision import fd_limit
from actors.supervision.callbacks import CountdownLatch, PhasedShutdown, StartWaiters, noop
from actors.supervision.handover import Predecessor, Predecessors
from actors.supervision.lifecycle import ActorState
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.occasional_actors import Explainers, OccasionalActor, PoolChecks
from actors.supervision.processes.actor_specs import (
    ActorClasses,
    ActorSpec,
    SupervisionContext,
    collector_specs,
    pools_spec,
    proxy_resolver_spec,
)
from actors.supervision.processes.managed_actor import ManagedActor
from actors.supervision.proxies.desired_proxies import DesiredProxies, worker_count
from actors.supervision.proxies.proxy_actors import ProxyActors
from actors.supervision.proxies.proxy_commands import ProxyCommands
from actors.supervision.proxies.proxy_events import ProblemReports, ProxyEventPublisher, ProxyNamePublisher
from actors.supervision.proxies.reconcile import Reconciler
from actors.supervision.proxies.sleepers import Sleepers
from actors.supervision.runtime_report import RuntimeReporter
from actors.supervision.settings_updates import EgressConfigPublisher, SupervisionConfig

log = logging.getLogger(__name__)


CHECK_PERIOD = 1.0
OPTIONAL = (TELEMETRY, RESOLVER, PROXY_RESOLVER, POOLS)
"""Actors without which the product works: names are looked up by the system then, upstreams are known by their use."""
DELAYED_AFTER = 3.0
"""Seconds between two checks after which the supervisor itself must have been delayed, not the actors."""


class ActorSupervisor:
    """See the module. `receive` handles the messages to the supervisor."""

    def __init__(
        self,
        context: SupervisionContext,
        events: Forwarder,
        classes: ActorClasses,
        config: SupervisionConfig,
        api: Sequence[ActorSpec],
        more: Sequence[ActorSpec],
        listeners: ListenerRegistry,
        predecessors: Iterable[Predecessor],
    ) -> None:
        """`api`: the API and its TLS terminator, if any; `more` run beside them, `predecessors` before them."""
        self._context = context
        self._events = events
        self._config = config
        self._listeners = listeners
        self._desired = DesiredProxies()
        self._desired.objects.put_first(config.first_policy)
        self._proxy_events = ProxyEventPublisher(events, self._desired.get, lambda: context.loop.now)
        self._problems = ProblemReports(self._proxy_events, self._by_name, self.label)
        self._egress = EgressConfigPublisher(context.loop, listeners, config, self._egress_changed)
        self._predecessors = Predecessors(context.loop, context.router, predecessors, config.drain_timeout)
        self._predecessors.on_end = self._advance_shutdown
        self._sleepers = Sleepers(context, self._desired, listeners, self._predecessors, self._wake)
        self._actors = ProxyActors(
            context,
            self,
            classes.forwarding,
            config,
            listeners,
            self._predecessors,
            self._sleepers,
            self._configuration,
            self._problems.forget_proxy,
        )
        self._explainers = Explainers(context, classes.explaining, self._configuration)
        context.router.is_asleep = lambda name: actor_proxy(name) in self._sleepers
        self._fixed = {
            spec.name: ManagedActor(spec, context, self) for spec in (*collector_specs(classes, config), *more, *api)
        }
        self._api = [self._fixed[spec.name] for spec in api]
        self._pools = PoolChecks(pools_spec(classes), context, self, self._fixed, lambda: self._problems.forget(POOLS))
        proxy_resolver = OccasionalActor(proxy_resolver_spec(classes), context, self, self._fixed)
        self._occasional = {POOLS: self._pools, PROXY_RESOLVER: proxy_resolver}
        self._reconciler = Reconciler(
            context.loop, self._desired, self._actors, self._egress, self._pools, proxy_resolver, lambda: self.is_ending
        )
        self._starting = StartWaiters(context.loop, self._actors.is_starting)
        self._names = ProxyNamePublisher(context.router, self._fixed)
        self._report = RuntimeReporter(
            self._desired,
            self._actors,
            self._fixed,
            self._problems.book,
            self._sleepers,
            self._pools,
            self._predecessors,
        )
        self._problems.own = self._report.own_problems
        self._checked_at = context.loop.now
        self._shutdown: PhasedShutdown | None = None
        self.on_ready: Callable[[], None] = noop
        """Called once, when the fixed actors run for the first time, but for the `OPTIONAL` ones."""
        self._handlers = self._all_handlers()

    def _all_handlers(self) -> dict[type[Any], Callable[[str, Any, Reply], None]]:
        """By class of a message to the supervisor."""
        commands = ProxyCommands(
            self._reconciler,
            self._context,
            self._listeners,
            self._desired,
            self._actors,
            self._sleepers,
            self._starting,
            self._names,
        )
        return {
            **commands.handlers,
            Hello: self._hello,
            Idle: self._sleepers.idle,
            StartExplainer: self._explainers.start,
            CheckPool: lambda _sender, message, reply: reply(
                self._pools.check_once(None if self.is_ending else self._desired.objects.packed(message.key))
            ),
            Listening: lambda sender, message, _reply: self._egress.add_service(sender, (message.host, message.port)),
            QueryRuntime: lambda _sender, message, reply: reply(self._report.report(message)),
            QueryWorkers: lambda _sender, message, reply: reply(self._report.workers(message)),
            ReportProblems: self._problems.received,
            ReplayEvents: lambda _sender, message, reply: reply(ReplayedEvents(self._events.recall(message.since))),
            DrainEnded: lambda _sender, message, _reply: self._predecessors.was_cut(message.cut),
        }

    # --- orders from the supervisor ---

    def start(
        self, specs: Iterable[ProxySpec], objects: Iterable[FleetObject], on_bound: Callable[[], None] = noop
    ) -> None:
        """Start everything; `objects` are what the proxies name. `on_bound`: all addresses that can be are bound."""
        self._desired.objects.replace(objects)
        self._desired.replace(specs)
        for spec in self._desired.specs.values():
            self._sleepers.begin_asleep(spec)
        fd_limit.warn_if_short(
            (len(each.ports), worker_count(each)) for each in self._desired.specs.values() if each.active
        )
        self._context.settings.put(self._egress_group())
        for actor in self._fixed.values():
            actor.start()
        self._reconciler.bring_up(self._desired.specs.keys(), on_bound)
        active = {forwarding_name(spec.id) for spec in self._desired.specs.values() if spec.active}
        for name in self._predecessors.names() - active:
            self._predecessors.drain(name, self._config.drain_timeout)
        self._context.loop.call_every(CHECK_PERIOD, self._check)

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """Handle a message to the supervisor."""
        self._handlers.get(type(message), refuse)(sender, message, reply)

    def apply(self, config: SupervisionConfig, latch: CountdownLatch, but: str = "") -> None:
        """Apply other settings; `latch` waits until all actors have, except `but`, which has them already."""
        self._config = config
        self._desired.objects.put_first(config.first_policy)
        self._actors.apply(config)
        self._egress.apply(config)
        self._context.settings.put({**config.groups, **self._egress_group()})
        for actor in self._all():
            if actor.name != but:
                actor.apply_settings(latch)
        self._reconciler.reconcile_awake(latch.add())

    def terminated(self, name: str, message: Terminated) -> None:
        """This process of an actor, and no other, is to end."""
        actor = self._actor_of(name, message.instance)
        if actor is not None:
            actor.terminated(message.instance, message.why)

    @property
    def beyond_help(self) -> str:
        """See `RuntimeReporter`."""
        return self._report.beyond_help

    @property
    def summary(self) -> str:
        """See `RuntimeReporter`."""
        return self._report.summary

    # --- the end ---

    @property
    def is_ending(self) -> bool:
        """True when nothing is started any more."""
        return self._shutdown is not None

    def end(self, on_end: Callable[[], None]) -> None:
        """Stop accepting, let everything drain, and call `on_end`: proxies and API first, then those they report to."""
        self._listeners.keep_for_restart()
        self._sleepers.ending = True
        for proxy_id in tuple(self._sleepers.by_id):
            self._actors.stop(proxy_id, noop)
        self._predecessors.drain_all(self._config.drain_timeout)
        self._shut_down(list(self._actors.all()), on_end, lambda: len(self._predecessors) > 0)

    def end_fixed(self, on_end: Callable[[], None]) -> None:
        """Let all but the proxies drain, for a program that comes after this one, and call `on_end`."""
        self._sleepers.hand_over()
        self._shut_down([], on_end, lambda: False)

    def hand_over(self) -> tuple[list[int], list[Predecessor]]:
        """After `end_fixed`: the listening sockets and the forwarding actors, which are the next program's now."""
        self._actors.settle_listeners(self._desired.specs)
        predecessors = [predecessor for actor in self._actors.all() for predecessor in actor.hand_over()]
        return self._listeners.hand_over(), [*predecessors, *self._predecessors.hand_over()]

    def kill_all(self) -> None:
        """Kill every process that still lives."""
        for actor in self._all():
            actor.kill_all()
        self._explainers.close()
        self._predecessors.kill_all()

    def kill_fixed(self) -> None:
        """Kill every process that still lives, except those of the proxies."""
        for actor in self._fixed.values():
            actor.kill_all()

    def close(self) -> None:
        """Close all listeners."""
        self._listeners.close()

    def _shut_down(self, first: list[ManagedActor], on_end: Callable[[], None], busy: Callable[[], bool]) -> None:
        """The TLS terminator ends before the API behind it, so that connections that it has accepted are served."""
        api, *front = self._api
        phases = [[*first, *front], [api]] if front else [[*first, api]]
        if front:
            self._context.router.tell(api.name, DrainConnections())
        last = (POOLS, LAB, METRICS, WEBHOOKS, LOGS, TELEMETRY, RESOLVER, PROXY_RESOLVER)
        phases.append([self._fixed[name] for name in last if name in self._fixed])
        self._shutdown = PhasedShutdown(phases, self._end_actor, on_end, busy)
        self._shutdown.advance()

    def _end_actor(self, actor: ManagedActor) -> None:
        if actor.worker.proxy_id:
            self._actors.stop(actor.worker.proxy_id, noop)
        else:
            actor.stop(self._config.drain_timeout, noop)

    def _advance_shutdown(self) -> None:
        if self._shutdown is not None:
            self._shutdown.advance()

    # --- what managed actors report (ActorObserver) ---

    def label(self, name: str, index: int | None = None) -> str:
        """What logs call the actor of this name, or one of its workers where there are several."""
        return self._desired.label(name, index)

    def actor_ready(self, actor: ManagedActor, instance: int) -> None:
        """Configure a forwarding actor before any other message can reach it, and the checks of pools."""
        if actor.name == POOLS:
            self._pools.configure(instance)
        configure = self._configuration(actor.worker.proxy_id)
        if configure is not None and not self._actors.has_at_start(actor, configure):
            self._actors.forget_configuration(actor)  # that of the process before: this one has no objects
            self._actors.configure(actor, instance, configure)

    def _configuration(self, proxy_id: str) -> Configure | None:
        """It must never serve without its own address, which waits for the next batch elsewhere."""
        spec = self._desired.get(proxy_id)
        return None if spec is None else self._desired.configuration(spec, self._egress.fresh())

    def actor_up(self, actor: ManagedActor) -> None:
        """Drain its predecessors, and send what has changed while it was starting."""
        log.info("%s runs (pid %s)", actor.label, actor.runtime().pid)
        self._actors.drain_predecessors(actor)
        if all(each.life.state is ActorState.RUNNING for name, each in self._fixed.items() if name not in OPTIONAL):
            on_ready, self.on_ready = self.on_ready, noop
            on_ready()
        self._names.started(actor.name, self._desired.specs)
        actor.apply_settings(CountdownLatch(noop))
        self._proxy_events.up(actor.worker.proxy_id, actor.life)
        self._problems.publish(actor)
        self._starting.update(actor.worker.proxy_id)
        self._actors.serves(actor)

    def actor_down(self, actor: ManagedActor) -> None:
        """Publish that a proxy is down, or that a worker of it is; its next process has no configuration."""
        proxy_id = actor.worker.proxy_id
        if proxy_id:
            self._actors.forget_configuration(actor)
            if not any(each.life.state is ActorState.RUNNING for each in self._by_name(actor.name)):
                self._proxy_events.down(proxy_id, actor.life)
            self._problems.publish(actor)
            self._starting.update(proxy_id)

    def actor_ended(self, actor: ManagedActor) -> None:
        """Continue with what has waited for its end."""
        if actor.life.state is ActorState.SLEEPING:
            self._actors.slept(actor)
            self._advance_shutdown()
            return
        log.info("%s has stopped", actor.label)
        if actor.name in self._occasional:
            self._occasional[actor.name].ended()
        self._starting.update(actor.worker.proxy_id)
        self._advance_shutdown()
        self._reconcile_of(actor)

    def actor_due(self, actor: ManagedActor) -> None:
        """Start it again."""
        if actor.name in self._fixed and not self.is_ending:
            actor.start()
        else:
            self._reconcile_of(actor)

    def _reconcile_of(self, actor: ManagedActor) -> None:
        self._reconciler.reconcile([actor.worker.proxy_id] if actor.worker.proxy_id else [])

    # --- messages ---

    def _hello(self, sender: str, message: Hello, _reply: Reply) -> None:
        actor = self._actor_of(sender, message.instance)
        if actor is not None:
            actor.hello(message.instance, message.pid)

    # --- the product's own listeners, which no proxy may reach ---

    def _egress_changed(self) -> None:
        self._context.settings.put(self._egress_group())
        for name in (WEBHOOKS, PROXY_RESOLVER):
            if name in self._fixed:
                self._fixed[name].apply_settings(CountdownLatch(noop))
        self._reconciler.reconcile_awake()

    def _egress_group(self) -> dict[str, dict[str, Any]]:
        own, ranges = self._egress.published.own, self._egress.published.own_ranges
        return {EGRESS: {"own": [list(each) for each in own], "own_ranges": [list(each) for each in ranges]}}

    def _wake(self, proxy_id: str) -> None:
        self._reconciler.wake(proxy_id)

    def _check(self) -> None:
        now = self._context.loop.now
        delayed = now - self._checked_at > DELAYED_AFTER
        self._checked_at = now
        for actor in self._all():
            if delayed:
                actor.reset_liveness()
            actor.check()
        self._context.spawner.check(delayed)
        if self._listeners.expire_reservations():
            self._reconciler.listeners_changed()
        if self._actors.any_unconfigured():
            self._reconciler.reconcile_awake()

    def _all(self) -> list[ManagedActor]:
        return [*self._fixed.values(), *self._actors.all()]

    def _by_name(self, name: str) -> list[ManagedActor]:
        """The actors with this name on the bus: one, or the workers of a proxy."""
        found = self._fixed.get(name) or self._explainers.actor(name)
        return self._actors.of_proxy(actor_proxy(name)) if found is None else [found]

    def _actor_of(self, name: str, instance: int) -> ManagedActor | None:
        return next((actor for actor in self._by_name(name) if actor.owns(instance)), None)
