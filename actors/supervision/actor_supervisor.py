"""All actors together: the wish, what is really so, and the messages that change either.

The fleet carries out what `reconcile` decides. It knows four actors that always run (the API, the metrics collector,
the log indexer, the webhook sender) and one forwarding actor for every proxy that is wished active.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from actors.bus.events import Forwarder
from actors.bus.mailbox import Answer, refuse
from actors.bus.messages.common import (
    EGRESS,
    LOGS,
    METRICS,
    TELEMETRY,
    WEBHOOKS,
    Done,
    Failed,
    Hello,
    Listening,
    forwarding_name,
    proxy_label,
)
from actors.bus.messages.fleet import (
    ApplyProxy,
    AwaitProxy,
    CancelListeners,
    DrainConnections,
    Fleet,
    ListenerRefused,
    ListenerReserved,
    QueryRuntime,
    RemoveProxy,
    ReplaceProxies,
    ReserveListener,
    RestartProxy,
    Runtime,
)
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.metrics import DropProxyMetrics
from actors.bus.messages.problems import ReportProblems
from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.webhooks import ReplayedEvents, ReplayEvents
from actors.supervision.actor_specs import collector_specs
from actors.supervision.callbacks import CountdownLatch, call_once, noop
from actors.supervision.config import ActorClasses, SupervisionConfig
from actors.supervision.egress_config import EgressConfigPublisher
from actors.supervision.listeners.registry import ListenerRegistry, ListenError, ResourceExhausted
from actors.supervision.problems import ProblemBook
from actors.supervision.processes.lifecycle import State
from actors.supervision.processes.managed_actor import ActorSpec, ManagedActor, SupervisionContext
from actors.supervision.processes.proxy_actors import ProxyActors
from actors.supervision.processes.start_waiters import StartWaiters
from actors.supervision.proxy_events import ProxyEventPublisher
from actors.supervision.proxy_names import ProxyNames
from actors.supervision.reconcile import reconcile
from actors.supervision.shutdown import PhasedShutdown
from actors.supervision.upgrade.handover import Predecessor
from actors.supervision.upgrade.predecessors import Predecessors

log = logging.getLogger(__name__)

WATCH_PERIOD = 1.0
HELD_UP_AFTER = 3.0
"""Seconds between two looks after which the supervisor itself must have been held up, not the actors."""
RESTART_ANSWER_MAX = 4.0
REMOVED_REMEMBERED = 1_000


class ActorSupervisor:
    """See the module. `receive` takes the messages to the supervisor."""

    def __init__(
        self,
        context: SupervisionContext,
        events: Forwarder,
        classes: ActorClasses,
        config: SupervisionConfig,
        *api: ActorSpec,
        listeners: ListenerRegistry | None = None,
        predecessors: Iterable[Predecessor] = (),
    ) -> None:
        """`api` are the plans of the API and of what stands in front of it; `predecessors` are of an older program."""
        self._context = context
        self._events = events
        self._config = config
        self._listeners = listeners or ListenerRegistry(time.monotonic)
        self._desired: dict[str, ProxySpec] = {}
        self._removed: deque[str] = deque(maxlen=REMOVED_REMEMBERED)
        self._announcer = ProxyEventPublisher(events, self._spec_of, lambda: context.loop.now)
        self._problems = ProblemBook()
        self._own = EgressConfigPublisher(context.loop, self._listeners, config, self._own_changed)
        self._predecessors = Predecessors(context.loop, context.router, predecessors, config.drain_timeout)
        self._predecessors.on_end = self._look_at_the_end
        self._actors = ProxyActors(
            context, self, classes.forwarding, config, self._listeners, self._predecessors, self._forget_problems
        )
        self._proxies = self._actors.by_id
        self._starting = StartWaiters(context.loop, self._is_starting)
        self._started_at = time.time()
        self._looked = context.loop.now
        self._ending: PhasedShutdown | None = None
        self.on_ready: Callable[[], None] = noop
        """Called once, when API, collector, indexer and sender run for the first time."""
        self._fixed = {
            plan.name: ManagedActor(plan, context, self) for plan in (*collector_specs(classes, config), *api)
        }
        self._names = ProxyNames(context.router, self._fixed)
        self._api = [self._fixed[plan.name] for plan in api]
        self._handlers = self._by_message()

    def _by_message(self) -> dict[type[Any], Callable[[str, Any, Answer], None]]:
        """Who takes which message to the supervisor."""
        return {
            Hello: self._hello,
            ReserveListener: self._reserve,
            CancelListeners: self._cancel,
            ApplyProxy: self._put,
            RemoveProxy: self._remove,
            RestartProxy: self._restart,
            AwaitProxy: self._await,
            ReplaceProxies: self._put_wish,
            QueryRuntime: self._describe,
            Listening: self._listening,
            ReportProblems: self._report,
            ReplayEvents: self._recall,
        }

    # --- orders from the supervisor ---

    def start(self, specs: Iterable[ProxySpec]) -> None:
        """Start everything."""
        self._desired = {spec.id: spec for spec in specs}
        self._context.settings.put(self._own_group())
        for actor in self._fixed.values():
            actor.start()
        self._reconcile()
        for name in self._predecessors.names() - {
            forwarding_name(spec.id) for spec in self._desired.values() if spec.active
        }:
            self._predecessors.drain(name, self._config.drain_timeout)
        self._context.loop.call_every(WATCH_PERIOD, self._look)

    def receive(self, sender: str, message: Any, answer: Answer) -> None:
        """A message to the supervisor."""
        self._handlers.get(type(message), refuse)(sender, message, answer)

    def end(self, on_end: Callable[[], None]) -> None:
        """Stop accepting, let everything drain, and call `on_end`: proxies and API first, then those they report to."""
        self._listeners.leave()
        for name in self._predecessors.names():
            self._predecessors.drain(name, self._config.drain_timeout)
        self._finish(list(self._proxies.values()), on_end, lambda: len(self._predecessors) > 0)

    def hand_over(self, on_end: Callable[[], None]) -> None:
        """Let all but the proxies drain, for a program that comes after this one, and call `on_end`."""
        self._finish([], on_end, lambda: False)

    def left(self) -> tuple[list[int], list[Predecessor]]:
        """After `hand_over`: the listening sockets and the forwarding actors, which are not this program's any more."""
        self._actors.settle(self._desired)
        predecessors = [predecessor for actor in self._proxies.values() for predecessor in actor.hand_over()]
        return self._listeners.hand_over(), [*predecessors, *self._predecessors.hand_over()]

    def _finish(self, first: list[ManagedActor], on_end: Callable[[], None], busy: Callable[[], bool]) -> None:
        """What stands in front of the API ends before it: a connection that it has taken is served."""
        api, *front = self._api
        phases = [[*first, *front], [api]] if front else [[*first, api]]
        if front:
            self._context.router.tell(api.name, DrainConnections())
        phases.append([self._fixed[name] for name in (METRICS, WEBHOOKS, LOGS, TELEMETRY) if name in self._fixed])
        self._ending = PhasedShutdown(phases, self._end_actor, on_end, busy)
        self._ending.look()

    def _end_actor(self, actor: ManagedActor) -> None:
        proxy_id = self._proxy_id(actor)
        if proxy_id:
            self._actors.stop(proxy_id, noop)
        else:
            actor.stop(self._config.drain_timeout, noop)

    def _look_at_the_end(self) -> None:
        if self._ending is not None:
            self._ending.look()

    def apply(self, config: SupervisionConfig, latch: CountdownLatch, but: str = "") -> None:
        """Other settings are effective; `latch` waits until all actors have applied them.

        The actor `but` knows them already.
        """
        self._config = config
        self._actors.apply(config)
        self._own.apply(config)
        self._context.settings.put({**config.groups, **self._own_group()})
        for actor in self._all():
            if actor.name != but:
                actor.apply_settings(latch)
        self._reconcile()

    def hasten(self) -> None:
        """Kill everything that still lives."""
        for actor in self._all():
            actor.hasten()
        self._predecessors.kill_all()

    def hasten_fixed(self) -> None:
        """Kill all that still lives but the proxies."""
        for actor in self._fixed.values():
            actor.hasten()

    def close(self) -> None:
        """Release all listeners."""
        self._listeners.close()

    @property
    def beyond_help(self) -> str:
        """What is wrong that neither a restart of an actor nor waiting has mended; empty when nothing is."""
        stuck = [self.label(actor.name) for actor in self._all() if actor.stuck]
        return f"killed and still there, or never made: {', '.join(stuck)}" if stuck else ""

    @property
    def summary(self) -> str:
        """One line for `systemctl status`."""
        running = sum(actor.life.state is State.RUNNING for actor in self._proxies.values())
        wanted = sum(spec.active for spec in self._desired.values())
        degraded = sum(self._runtime(actor).state == "degraded" for actor in self._proxies.values())
        return f"{running} of {wanted} proxies running{f', {degraded} of them degraded' if degraded else ''}"

    # --- what managed actors tell ---

    def label(self, name: str) -> str:
        """What people call the actor `name`: of a proxy `office (3128)`."""
        spec = self._desired.get(name.removeprefix(forwarding_name("")))
        return name if spec is None else proxy_label(spec.name, spec.port)

    def actor_ready(self, actor: ManagedActor, instance: int) -> None:
        """Configure a forwarding actor before anything else can reach it."""
        proxy_id = self._proxy_id(actor)
        if proxy_id in self._desired:
            # It must not serve for a moment without knowing its own address, whatever waits for the next batch.
            self._actors.configure(actor, instance, Configure(self._desired[proxy_id], self._own.now()))

    def actor_up(self, actor: ManagedActor) -> None:
        """Say that a proxy is back, and whatever the log wants to know."""
        log.info("%s runs (pid %s)", self.label(actor.name), actor.runtime().pid)
        self._predecessors.drain(actor.name, self._config.drain_timeout)
        if all(each.life.state is State.RUNNING for name, each in self._fixed.items() if name != TELEMETRY):
            on_ready, self.on_ready = self.on_ready, noop
            on_ready()
        self._names.started(actor.name, self._desired)
        proxy_id = self._proxy_id(actor)
        actor.apply_settings(CountdownLatch(noop))  # they may have changed while it was starting
        self._announcer.up(proxy_id, actor.life)
        self._say_problems(actor)
        self._starting.look(proxy_id)

    def actor_down(self, actor: ManagedActor) -> None:
        """Say that a proxy is down."""
        proxy_id = self._proxy_id(actor)
        self._actors.died(proxy_id)
        if proxy_id:
            self._announcer.down(proxy_id, actor.life)
            self._starting.look(proxy_id)

    def actor_ended(self, actor: ManagedActor) -> None:
        """It has stopped."""
        log.info("%s has stopped", self.label(actor.name))
        self._starting.look(self._proxy_id(actor))
        if self._ending is not None:
            self._ending.look()
        else:
            self._reconcile()

    def actor_due(self, actor: ManagedActor) -> None:
        """Try again."""
        if self._ending is not None:
            return
        if actor.name in self._fixed:
            actor.start()
        else:
            self._reconcile()

    # --- messages ---

    def _hello(self, sender: str, message: Hello, _answer: Answer) -> None:
        actor = self._by_name(sender)
        if actor is not None:
            actor.hello(message.instance, message.pid)

    def _reserve(self, _sender: str, message: ReserveListener, answer: Answer) -> None:
        try:
            self._listeners.reserve(message.proxy_id, message.host, message.port, message.instead_of)
        except ResourceExhausted as error:
            answer(Failed(error.error))
            return
        except ListenError as error:
            answer(ListenerRefused(error.field, error.error))
            return
        answer(ListenerReserved(message.host, message.port))

    def _cancel(self, _sender: str, message: CancelListeners, answer: Answer) -> None:
        for proxy_id in message.proxy_ids:
            self._listeners.cancel(proxy_id)
        self._own.refresh(len(self._proxies))
        answer(Done())

    def _put(self, _sender: str, message: ApplyProxy, answer: Answer) -> None:
        spec = message.spec
        known = self._desired.get(spec.id)
        if spec.id in self._removed or (known is not None and known.revision > spec.revision):
            answer(Done())
            return
        self._desired[spec.id] = spec
        self._names.changed({} if known is None else {spec.id: known}, {spec.id: spec})
        if spec.active and spec.id in self._proxies:
            self._proxies[spec.id].forgive()
        self._reconcile(call_once(lambda: answer(Done())))

    def _remove(self, _sender: str, message: RemoveProxy, answer: Answer) -> None:
        known = self._desired.pop(message.proxy_id, None)
        self._names.changed({} if known is None else {known.id: known}, {})
        self._removed.append(message.proxy_id)
        self._keeper_forget(message.proxy_id)
        self._reconcile(call_once(lambda: answer(Done())))
        self._context.router.tell(METRICS, DropProxyMetrics(message.proxy_id))

    def _restart(self, _sender: str, message: RestartProxy, answer: Answer) -> None:
        spec = self._desired.get(message.proxy_id)
        if spec is None or not spec.active or self._ending is not None:
            answer(Failed("the proxy is not active", "proxy_id"))
            return
        reply = call_once(answer)
        self._context.loop.call_later(RESTART_ANSWER_MAX, lambda: reply(Done()))
        actor = self._proxies.get(spec.id)
        if actor is not None:
            actor.forgive()
        self._reconcile()
        actor = self._proxies[spec.id]
        if actor.life.state is State.FAILED:
            reply(Failed(actor.life.error or "it can't be started"))
        else:
            actor.replace(reply)

    def _await(self, _sender: str, message: AwaitProxy, answer: Answer) -> None:
        self._starting.wait(message.proxy_id, message.seconds, lambda: answer(Done()))

    def _is_starting(self, proxy_id: str) -> bool:
        actor = self._proxies.get(proxy_id)
        return actor is not None and actor.life.state is State.STARTING

    def _put_wish(self, _sender: str, message: ReplaceProxies, answer: Answer) -> None:
        before, self._desired = self._desired, {spec.id: spec for spec in message.specs}
        self._removed.clear()
        self._names.changed(before, self._desired)
        for spec in message.specs:
            if spec.active and spec.id in self._proxies and before.get(spec.id) != spec:
                self._proxies[spec.id].forgive()
        self._reconcile(call_once(lambda: answer(Done())))
        for proxy_id in before.keys() - self._desired.keys():
            self._context.router.tell(METRICS, DropProxyMetrics(proxy_id))

    def _describe(self, _sender: str, message: QueryRuntime, answer: Answer) -> None:
        wanted = message.proxy_ids or tuple(self._desired if message.stopped else self._proxies)
        stopped = Runtime(State.STOPPED.value, None, self._started_at, 0, None)
        proxies = {
            proxy_id: replace(
                self._runtime(self._proxies[proxy_id]) if proxy_id in self._proxies else stopped,
                name=self._desired[proxy_id].name,
                protocol=self._desired[proxy_id].protocol,
            )
            for proxy_id in wanted
            if proxy_id in self._desired
        }
        actors = {name: self._runtime(actor) for name, actor in self._fixed.items()}
        answer(Fleet(proxies, actors, self._started_at))

    def _runtime(self, actor: ManagedActor) -> Runtime:
        return self._problems.applied(actor.name, actor.instance, actor.runtime())

    def _report(self, sender: str, message: ReportProblems, _answer: Answer) -> None:
        actor = self._by_name(sender)
        if actor is not None and actor.life.state is not State.DRAINING:
            self._problems.put(sender, message)
            self._say_problems(actor)

    def _say_problems(self, actor: ManagedActor) -> None:
        begun, over = self._problems.news(actor.name, actor.instance)
        proxy_id = self._proxy_id(actor)
        self._announcer.problems(self.label(actor.name), proxy_id, begun, over)

    def _forget_problems(self, proxy_id: str) -> None:
        self._problems.forget(forwarding_name(proxy_id))
        self._announcer.forget(proxy_id)

    def _listening(self, sender: str, message: Listening, _answer: Answer) -> None:
        self._own.found(sender, (message.host, message.port))

    def _own_changed(self) -> None:
        """The product listens elsewhere than before: all who connect for others have to know."""
        self._context.settings.put(self._own_group())
        self._fixed[WEBHOOKS].apply_settings(CountdownLatch(noop))
        self._reconcile()

    def _own_group(self) -> dict[str, dict[str, Any]]:
        return {EGRESS: {"own": [list(each) for each in self._own.told.own]}}

    def _recall(self, _sender: str, message: ReplayEvents, answer: Answer) -> None:
        answer(ReplayedEvents(self._events.recall(message.since)))

    # --- carrying out ---

    def _reconcile(self, quiet: Callable[[], None] | None = None) -> None:
        """Bring reality to the wish. `quiet` is called when what has to stop accepting has stopped."""
        if self._ending is not None:
            if quiet is not None:
                quiet()
            return
        latch = CountdownLatch(quiet or noop)
        self._actors.carry_out(reconcile(self._desired, self._actors.real(), self._own.told), latch)
        latch.release()
        self._own.refresh(len(self._proxies))

    def _keeper_forget(self, proxy_id: str) -> None:
        if self._listeners.kept(proxy_id) is None:
            self._listeners.release(proxy_id)  # a reservation that came to nothing

    def _look(self) -> None:
        now = self._context.loop.now
        held_up = now - self._looked > HELD_UP_AFTER
        self._looked = now
        for actor in self._all():
            if held_up:
                actor.pardon()
            actor.check()
        self._context.spawner.check(held_up)
        if self._listeners.lapse():
            self._own.refresh(len(self._proxies))
        if self._ending is None and self._actors.any_untold():
            self._reconcile()

    def _spec_of(self, proxy_id: str) -> ProxySpec | None:
        return self._desired.get(proxy_id)

    def _all(self) -> list[ManagedActor]:
        return [*self._fixed.values(), *self._proxies.values()]

    def terminated(self, name: str) -> None:
        """A SIGTERM asked the process of this actor, and no other, to end."""
        actor = self._by_name(name)
        if actor is not None:
            actor.terminated()

    def _by_name(self, name: str) -> ManagedActor | None:
        return self._fixed.get(name) or self._proxies.get(name.removeprefix(forwarding_name("")))

    def _proxy_id(self, actor: ManagedActor) -> str:
        prefix = forwarding_name("")
        return actor.name.removeprefix(prefix) if actor.name.startswith(prefix) else ""
