"""The API's commands on proxies and their listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from actors.bus.mailbox import Reply
from actors.bus.messages.common import METRICS, Done, Failed
from actors.bus.messages.metrics import DropProxyMetrics
from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.supervision import (
    ApplyProxy,
    AwaitProxy,
    CancelListeners,
    ListenerRefused,
    ListenerReserved,
    RemoveProxy,
    ReplaceProxies,
    ReserveListener,
    RestartProxy,
)
from actors.supervision.callbacks import call_once
from actors.supervision.desired_proxies import DesiredProxies
from actors.supervision.listeners.bind import ListenError, ResourceExhausted
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.processes.lifecycle import State
from actors.supervision.processes.managed_actor import ManagedActor, SupervisionContext
from actors.supervision.processes.start_waiters import StartWaiters
from actors.supervision.proxy_names import ProxyNamePublisher

RESTART_REPLY_MAX = 4.0
"""Seconds after which a restart is acknowledged though the new process still starts."""


class Reconciler(Protocol):
    """What carries out a change of the desired state."""

    def reconcile(self, quiet: Callable[[], None] | None = None) -> None:
        """Bring the actual state to the desired one; `quiet` is called when what has to stop accepting has stopped."""

    def listeners_changed(self) -> None:
        """Listeners may have been added or removed."""

    @property
    def is_ending(self) -> bool:
        """True when nothing is started any more."""


class ProxyCommands:
    """`handlers` are by class of the message."""

    def __init__(
        self,
        reconciler: Reconciler,
        context: SupervisionContext,
        listeners: ListenerRegistry,
        desired: DesiredProxies,
        proxies: Mapping[str, ManagedActor],
        starting: StartWaiters,
        names: ProxyNamePublisher,
    ) -> None:
        self._reconciler = reconciler
        self._context = context
        self._listeners = listeners
        self._desired = desired
        self._proxies = proxies
        self._starting = starting
        self._names = names
        self.handlers: dict[type[Any], Callable[[str, Any, Reply], None]] = {
            ReserveListener: self._reserve,
            CancelListeners: self._cancel,
            ApplyProxy: self._apply,
            RemoveProxy: self._remove,
            RestartProxy: self._restart,
            AwaitProxy: self._await,
            ReplaceProxies: self._replace,
        }

    def _reserve(self, _sender: str, message: ReserveListener, reply: Reply) -> None:
        try:
            self._listeners.reserve(message.proxy_id, message.host, message.port, message.instead_of)
        except ResourceExhausted as error:
            reply(Failed(error.error))
        except ListenError as error:
            reply(ListenerRefused(error.field, error.error))
        else:
            reply(ListenerReserved(message.host, message.port))

    def _cancel(self, _sender: str, message: CancelListeners, reply: Reply) -> None:
        for proxy_id in message.proxy_ids:
            self._listeners.cancel(proxy_id)
        self._reconciler.listeners_changed()
        reply(Done())

    def _apply(self, _sender: str, message: ApplyProxy, reply: Reply) -> None:
        spec = message.spec
        if self._desired.is_outdated(spec):
            reply(Done())
            return
        known = self._desired.get(spec.id)
        self._desired.specs[spec.id] = spec
        self._names.changed({} if known is None else {spec.id: known}, {spec.id: spec})
        self._start_at_once(spec)
        self._reconcile(reply)

    def _remove(self, _sender: str, message: RemoveProxy, reply: Reply) -> None:
        known = self._desired.remove(message.proxy_id)
        self._names.changed({} if known is None else {known.id: known}, {})
        self._listeners.cancel(message.proxy_id)
        self._reconcile(reply)
        self._context.router.tell(METRICS, DropProxyMetrics(message.proxy_id))

    def _replace(self, _sender: str, message: ReplaceProxies, reply: Reply) -> None:
        before = self._desired.replace(message.specs)
        after = self._desired.specs
        self._names.changed(before, after)
        for spec in after.values():
            if before.get(spec.id) != spec:
                self._start_at_once(spec)
        self._reconcile(reply)
        for proxy_id in before.keys() - after.keys():
            self._listeners.cancel(proxy_id)
            self._context.router.tell(METRICS, DropProxyMetrics(proxy_id))

    def _restart(self, _sender: str, message: RestartProxy, reply: Reply) -> None:
        spec = self._desired.get(message.proxy_id)
        if spec is None or not spec.active or self._reconciler.is_ending:
            reply(Failed("the proxy is not active", "proxy_id"))
            return
        reply = call_once(reply)
        self._context.loop.call_later(RESTART_REPLY_MAX, lambda: reply(Done()))
        self._start_at_once(spec)
        self._reconciler.reconcile()
        actor = self._proxies[spec.id]
        if actor.life.state is State.FAILED:
            reply(Failed(actor.life.error or "it can't be started"))
        else:
            actor.replace(reply)

    def _await(self, _sender: str, message: AwaitProxy, reply: Reply) -> None:
        self._starting.wait(message.proxy_id, message.seconds, lambda: reply(Done()))

    def _start_at_once(self, spec: ProxySpec) -> None:
        """A change of a proxy ends its back-off."""
        actor = self._proxies.get(spec.id)
        if spec.active and actor is not None:
            actor.reset_backoff()

    def _reconcile(self, reply: Reply) -> None:
        self._reconciler.reconcile(call_once(lambda: reply(Done())))
