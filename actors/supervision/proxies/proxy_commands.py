"""The API's commands on proxies and their listeners."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from actors.bus.mailbox import Reply
from actors.bus.messages.common import METRICS, Done, Failed
from actors.bus.messages.metrics import DropProxyMetrics
from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.supervision import (
    ApplyObjects,
    ApplyProxies,
    AwaitProxy,
    CancelListeners,
    DesiredRevisions,
    ListenerRefused,
    ListenerReserved,
    QueryDesired,
    ReplaceProxies,
    ReserveListener,
    RestartProxy,
)
from actors.supervision.callbacks import CountdownLatch, StartWaiters, call_once
from actors.supervision.lifecycle import ActorState
from actors.supervision.listeners.bind import ListenError, ResourceExhausted
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.processes.actor_specs import SupervisionContext
from actors.supervision.processes.managed_actor import ManagedActor
from actors.supervision.proxies.desired_proxies import DesiredProxies, worker_count
from actors.supervision.proxies.proxy_actors import ProxyActors
from actors.supervision.proxies.proxy_events import ProxyNamePublisher
from actors.supervision.proxies.reconcile import Reconciler
from actors.supervision.proxies.sleepers import Sleepers
from config.net.names import Ports

RESTART_REPLY_MAX = 4.0
"""Seconds after which a restart is acknowledged though the new process still starts."""


@dataclass(frozen=True, slots=True, eq=False)
class ProxyCommands:
    """What handles them."""

    reconciler: Reconciler
    context: SupervisionContext
    listeners: ListenerRegistry
    desired: DesiredProxies
    proxies: ProxyActors
    sleepers: Sleepers
    starting: StartWaiters
    names: ProxyNamePublisher

    @property
    def handlers(self) -> dict[type[Any], Callable[[str, Any, Reply], None]]:
        """By class of the message."""
        return {
            ReserveListener: self._reserve,
            CancelListeners: self._cancel,
            ApplyProxies: self._apply,
            RestartProxy: self._restart,
            AwaitProxy: self._await,
            QueryDesired: lambda _sender, _message, reply: reply(DesiredRevisions(self.desired.revisions())),
            ReplaceProxies: self._replace,
            ApplyObjects: self._apply_objects,
        }

    def _reserve(self, _sender: str, message: ReserveListener, reply: Reply) -> None:
        try:
            ports = Ports.of(message.port, message.last_port)
            self.listeners.reserve(message.proxy_id, message.host, ports, message.instead_of)
        except ResourceExhausted as error:
            reply(Failed(error.error))
        except ListenError as error:
            holder = self.listeners.holder(message.host, error.taken) if error.taken else ""
            reply(ListenerRefused(error.field, error.error, holder))
        else:
            reply(ListenerReserved(message.host, message.port))

    def _cancel(self, _sender: str, message: CancelListeners, reply: Reply) -> None:
        for proxy_id in message.proxy_ids:
            self.listeners.cancel(proxy_id)
        self.reconciler.listeners_changed()
        reply(Done())

    def _apply(self, _sender: str, message: ApplyProxies, reply: Reply) -> None:
        after = {spec.id: spec for spec in message.specs if not self.desired.is_outdated(spec)}
        known = [self.desired.put(spec) for spec in after.values()]
        known += [self.desired.remove(proxy_id) for proxy_id in message.gone]
        self.names.changed({spec.id: spec for spec in known if spec is not None}, after)
        for spec in after.values():
            self._start_at_once(spec)
            if len(after) > 1 or self.sleepers.many_awake:
                self.sleepers.begin_asleep(spec)
        self._cancel_all(message.gone)
        self.reconciler.reconcile((*message.gone, *after), _done(reply))

    def _apply_objects(self, _sender: str, message: ApplyObjects, reply: Reply) -> None:
        self.desired.objects.apply(message.objects, message.gone)
        self.reconciler.reconcile_awake(_done(reply))

    def _replace(self, _sender: str, message: ReplaceProxies, reply: Reply) -> None:
        if not self.desired.specs.keys() >= set(message.unchanged):
            reply(Failed("proxies that are said to be unchanged are not known"))
            return
        self.desired.objects.replace(message.objects)
        before = self.desired.replace(message.specs, message.unchanged)
        after = self.desired.specs
        changed = [spec for spec in message.specs if before.get(spec.id) != spec]
        gone = before.keys() - after.keys()
        self.names.changed(before, after)
        for spec in changed:
            self._start_at_once(spec)
            self.sleepers.begin_asleep(spec)
        self._replace_all(changed, gone, reply)
        self._cancel_all(gone)

    def _cancel_all(self, gone: Iterable[str]) -> None:
        for proxy_id in gone:
            self.listeners.cancel(proxy_id)
            self.context.router.tell(METRICS, DropProxyMetrics(proxy_id))

    def _replace_all(self, changed: Iterable[ProxySpec], gone: Collection[str], reply: Reply) -> None:
        """First those that leave or move, and those whose objects may be others, then what is to be bound anew."""
        new = [spec.id for spec in changed if self.listeners.kept(spec.id) is None]
        others = {spec.id for spec in changed} - set(new)
        latch = CountdownLatch(_done(reply))
        self.reconciler.reconcile({**self.proxies.by_id, **dict.fromkeys((*gone, *others))}, latch.add())
        self.reconciler.bring_up(new, latch.add())
        latch.release()

    def _restart(self, _sender: str, message: RestartProxy, reply: Reply) -> None:
        spec = self.desired.get(message.proxy_id)
        if spec is None or not spec.active or self.reconciler.is_ending():
            reply(Failed("the proxy is not active", "proxy_id"))
            return
        reply = call_once(reply)
        self.context.loop.call_later(RESTART_REPLY_MAX, lambda: reply(Done()))
        self._start_at_once(spec)
        self.sleepers.wake(spec.id)
        self.reconciler.reconcile([spec.id])
        self._replace_next(self.proxies.of_proxy(spec.id)[: worker_count(spec)], reply)

    def _replace_next(self, workers: Sequence[ManagedActor], reply: Reply) -> None:
        """Replace the first of these, and when that serves the next. The rest stay as they are when one fails."""
        first, *rest = workers

        def replaced(outcome: object) -> None:
            if rest and isinstance(outcome, Done):
                self._replace_next(rest, reply)
            else:
                reply(outcome)

        if first.life.state is ActorState.FAILED:
            reply(Failed(first.life.error or "it can't be started"))
        else:
            first.replace(replaced)

    def _await(self, _sender: str, message: AwaitProxy, reply: Reply) -> None:
        if message.wake:
            self.sleepers.wake(message.proxy_id)
        self.starting.wait(message.proxy_id, message.seconds, lambda: reply(Done()))

    def _start_at_once(self, spec: ProxySpec) -> None:
        """A change of a proxy ends the back-off of its workers."""
        for actor in self.proxies.of_proxy(spec.id) if spec.active else ():
            actor.reset_backoff()


def _done(reply: Reply) -> Callable[[], None]:
    return call_once(lambda: reply(Done()))
