"""The forwarding actors with their listening sockets, and how each step of `reconcile` is carried out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from socket import socket

from actors.bus.mailbox import address_of
from actors.bus.messages.common import forwarding_name
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import ProxySpec
from actors.supervision.actor_specs import proxy_spec
from actors.supervision.callbacks import CountdownLatch, call_once
from actors.supervision.config import SupervisionConfig
from actors.supervision.listeners.bind import ListenError
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.processes.lifecycle import State
from actors.supervision.processes.managed_actor import ActorObserver, ManagedActor, SupervisionContext
from actors.supervision.reconcile import ActualState, Bind, Forget, SendConfiguration, Start, Step, Stop
from actors.supervision.upgrade.predecessors import Predecessors

log = logging.getLogger(__name__)


class ProxyActors:
    """`by_id` has one managed actor for each proxy that runs, or did until a moment ago.

    `on_stop` is called with the id of a proxy that is not to run any more.
    """

    def __init__(
        self,
        context: SupervisionContext,
        observer: ActorObserver,
        actor_class: str,
        config: SupervisionConfig,
        listeners: ListenerRegistry,
        predecessors: Predecessors,
        on_stop: Callable[[str], None],
    ) -> None:
        self.by_id: dict[str, ManagedActor] = {}
        self._context = context
        self._observer = observer
        self._class = actor_class
        self._config = config
        self._listeners = listeners
        self._predecessors = predecessors
        self._on_stop = on_stop
        self._configured: dict[str, Configure] = {}

    def apply(self, config: SupervisionConfig) -> None:
        """Apply other settings: to drains at once, for the rest at the next starts."""
        self._config = config
        for actor in self.by_id.values():
            actor.drain = config.drain_timeout

    def actual(self) -> dict[str, ActualState]:
        """The actual state, for `reconcile`."""
        return {
            proxy_id: ActualState(
                actor.life.state, self._listeners.kept(proxy_id), self._configured.get(proxy_id), actor.backs_off
            )
            for proxy_id, actor in self.by_id.items()
        }

    def execute(self, steps: Iterable[Step], latch: CountdownLatch) -> None:
        """Carry out the steps. `latch` waits until what has to stop accepting has stopped."""
        not_bound: set[str] = set()
        for step in steps:
            match step:
                case Stop(proxy_id):
                    self.stop(proxy_id, latch.add())
                case Bind(proxy_id, address):
                    if not self._bind(proxy_id, *address):
                        not_bound.add(proxy_id)
                case Start(proxy_id):
                    if proxy_id not in not_bound:
                        self._actor(proxy_id).start()
                case SendConfiguration(proxy_id, configure):
                    actor = self.by_id[proxy_id]
                    self.configure(actor, actor.instance or 0, configure)
                case Forget(proxy_id):
                    del self.by_id[proxy_id]
                    self._on_stop(proxy_id)

    def settle_listeners(self, desired: Mapping[str, ProxySpec]) -> None:
        """Adapt the listeners, and nothing else, to changes of the desired state since a handover began.

        So the next program gets the sockets of proxies that were just made, and none of those that are gone.
        """
        wanted = {proxy_id: spec for proxy_id, spec in desired.items() if spec.active}
        for proxy_id in self.by_id.keys() - wanted.keys():
            self._listeners.release(proxy_id)
        for proxy_id, spec in wanted.items():
            try:
                self._listeners.keep(proxy_id, spec.host, spec.port)
            except ListenError as error:
                log.info("%s: left to the next program: %s", self._observer.label(forwarding_name(proxy_id)), error)

    def stop(self, proxy_id: str, quiet: Callable[[], None]) -> None:
        """Have it drain and end, with its predecessors.

        When it has stopped accepting, its listener is closed and `quiet` is called.
        """
        self._listeners.defer_close(proxy_id)
        self._configured.pop(proxy_id, None)
        self._on_stop(proxy_id)
        self._predecessors.drain(forwarding_name(proxy_id), self._config.drain_timeout)

        def close_listener() -> None:
            self._listeners.close_deferred(proxy_id)
            quiet()

        self.by_id[proxy_id].stop(self._config.drain_timeout, call_once(close_listener))

    def configure(self, actor: ManagedActor, instance: int, configure: Configure) -> None:
        """Send a process the configuration of its proxy."""
        if self._context.router.tell(address_of(actor.name, instance), configure):
            self._configured[configure.spec.id] = configure

    def forget_configuration(self, proxy_id: str) -> None:
        """Its process died, and the next one has no configuration."""
        self._configured.pop(proxy_id, None)

    def any_unconfigured(self) -> bool:
        """True if a process runs to which its configuration could not be sent."""
        return any(
            actor.life.state is State.RUNNING and proxy_id not in self._configured
            for proxy_id, actor in self.by_id.items()
        )

    def _bind(self, proxy_id: str, host: str, port: int) -> bool:
        try:
            self._listeners.keep(proxy_id, host, port)
        except ListenError as error:
            log.error("%s: %s", self._observer.label(forwarding_name(proxy_id)), error)
            self._actor(proxy_id).refused(error.error)
            return False
        return True

    def _actor(self, proxy_id: str) -> ManagedActor:
        actor = self.by_id.get(proxy_id)
        if actor is None:

            def sockets() -> list[socket]:
                listener = self._listeners.get(proxy_id)
                return [listener] if listener else []

            spec = proxy_spec(self._class, proxy_id, sockets)
            actor = self.by_id[proxy_id] = ManagedActor(spec, self._context, self._observer)
            actor.drain = self._config.drain_timeout
        return actor
