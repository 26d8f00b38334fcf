"""Actors that run only while they are needed.

Some are fixed actors that a proxy which is active needs: that which checks the upstreams of pools, the second resolver.
Others explain decisions for proxies that sleep, so that a question wakes none. These are no part of the proxy: nothing
of them is reported or counted, and its state stays `sleeping`.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Timer
from actors.bus.mailbox import Reply, address_of
from actors.bus.messages.common import POOLS, Done, Failed, actor_proxy, explainer_name
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import POOL_KEY, CheckPoolOnce, CheckPools, EgressSpec
from actors.bus.messages.supervision import StartExplainer
from actors.supervision.callbacks import noop
from actors.supervision.lifecycle import ActorState
from actors.supervision.processes.actor_specs import ActorSpec, SupervisionContext, params_at_start
from actors.supervision.processes.managed_actor import ActorObserver, ManagedActor


class OccasionalActor:
    """`fixed` has the actor while it runs or ends; `on_stop` is called when it is not to run any more."""

    def __init__(
        self,
        spec: ActorSpec,
        context: SupervisionContext,
        observer: ActorObserver,
        fixed: dict[str, ManagedActor],
        on_stop: Callable[[], None] = noop,
    ) -> None:
        self._context = context
        self._fixed = fixed
        self._on_stop = on_stop
        self._actor = ManagedActor(spec, context, observer)
        self._is_needed = False

    def need(self, is_needed: bool) -> None:
        """Start the actor, or have it end."""
        self._is_needed = is_needed
        if not is_needed:
            self._stop()
        elif self._actor.life.state in (ActorState.STOPPED, ActorState.DRAINING):
            self._fixed[self._actor.name] = self._actor
            self._actor.start()

    def ended(self) -> None:
        """It has drained and ended."""
        if not self._is_needed:
            self._fixed.pop(self._actor.name, None)

    def _stop(self) -> None:
        state = self._actor.life.state
        if state not in (ActorState.STOPPED, ActorState.DRAINING):
            self._actor.stop(0.0, noop)
            self._on_stop()
        if state is ActorState.FAILED:  # there is no process that would end
            self.ended()


CHECKS_FOR = 120.0
"""Seconds for which the actor runs for a pool that no proxy uses: longer than a check of all its upstreams takes."""
ASKED_MAX = 100


class PoolChecks(OccasionalActor):
    """An `OccasionalActor` that gets the pools."""

    _asked: tuple[bytes, ...] = ()
    """Pools to be checked once, as soon as the actor runs."""
    _needed_until = 0.0
    """The actor runs as long, so that it can check pools that no proxy uses."""
    _wanted = CheckPools(EgressSpec("public_only", (), ()))
    _sent: CheckPools | None = None

    def update(self, pools: dict[str, bytes], egress: EgressSpec) -> None:
        """These pools are to be checked: start the actor, send it what has changed, or have it end."""
        self._wanted = CheckPools(egress, pools)
        runs = self._actor.life.state is ActorState.RUNNING
        is_needed = bool(pools) or self._context.loop.now < self._needed_until
        self.need(is_needed)
        if is_needed and runs and self._sent != self._wanted and self._context.router.tell(POOLS, self._wanted):
            self._sent = self._wanted

    def check_once(self, packed: bytes | None) -> Done:
        """Check the upstreams of this pool, if there is one, whether a proxy uses it or not."""
        if packed is None:
            return Done()
        loop = self._context.loop
        self._needed_until = loop.now + CHECKS_FOR
        loop.call_later(CHECKS_FOR, self._let_go)
        if packed not in self._asked:
            self._asked = (*self._asked, packed)[-ASKED_MAX:]
        self.need(True)
        if self._actor.life.state is ActorState.RUNNING:
            self._send_asked(POOLS)
        return Done()

    def _let_go(self) -> None:
        if not self._wanted.pools and self._context.loop.now >= self._needed_until:
            self.need(False)

    def _send_asked(self, to: str) -> None:
        self._asked = tuple(each for each in self._asked if not self._context.router.tell(to, CheckPoolOnce(each)))

    @property
    def in_use(self) -> tuple[str, ...]:
        """The names of the pools that a proxy which is active may use."""
        return tuple(key.removeprefix(POOL_KEY) for key in self._wanted.pools)

    def configure(self, instance: int) -> None:
        """A process is ready for work."""
        to = address_of(POOLS, instance)
        self._sent = self._wanted if self._context.router.tell(to, self._wanted) else None
        self._send_asked(to)


IDLE_MAX = 10.0
"""Seconds without a question after which one ends."""
EXPLAINERS_MAX = 16
"""At the same time."""
DRAIN = 1.0


class _Explainer:
    """One of them, with those that wait for it and the configuration that it has."""

    def __init__(self, actor: ManagedActor) -> None:
        self.actor = actor
        self.configured: Configure | None = None
        self.waiting: list[Reply] = []
        self.timer: Timer | None = None


class Explainers:
    """By name of the actor. `configuration` returns that of a proxy now, None for one that is gone."""

    def __init__(
        self, context: SupervisionContext, actor_class: str, configuration: Callable[[str], Configure | None]
    ) -> None:
        self._context = context
        self._class = actor_class
        self._configuration = configuration
        self._by_name: dict[str, _Explainer] = {}

    def actor(self, name: str) -> ManagedActor | None:
        """The one of this name."""
        found = self._by_name.get(name)
        return None if found is None else found.actor

    def start(self, _sender: str, message: StartExplainer, reply: Reply) -> None:
        """Have one for a proxy for the next seconds."""
        name, configure = explainer_name(message.proxy_id), self._configuration(message.proxy_id)
        if configure is None:
            reply(Failed("there is no such proxy", "proxy_id"))
            return
        found = self._by_name.get(name)
        if found is None and len(self._by_name) >= EXPLAINERS_MAX:
            reply(Failed("too many are asked for at the same time"))
            return
        if found is None:
            found = self._by_name[name] = _Explainer(self._new_actor(name))
        if found.actor.life.state in (ActorState.STOPPED, ActorState.DRAINING):
            found.actor.start(self._at_start(found, configure))
        self._keep(found)
        if found.actor.life.state is ActorState.RUNNING:
            self._configure(found, configure)
            reply(Done())
        elif found.actor.life.state is ActorState.STARTING:
            found.waiting.append(reply)
        else:
            reply(Failed(found.actor.life.error or "it can't be started"))

    def close(self) -> None:
        """Kill all."""
        for each in self._by_name.values():
            each.actor.kill_all()

    # --- ActorObserver ---

    def label(self, name: str, index: int | None = None) -> str:  # noqa: ARG002 - there is one of each
        """What logs call it."""
        return f"the explainer of {actor_proxy(name)}"

    def actor_ready(self, actor: ManagedActor, instance: int) -> None:
        """It is configured below, before it is asked anything."""

    def actor_up(self, actor: ManagedActor) -> None:
        """Reply to those that wait."""
        found = self._by_name[actor.name]
        configure = self._configuration(actor_proxy(actor.name))
        if configure is not None:
            self._configure(found, configure)
        self._reply(found, Done())

    def actor_down(self, actor: ManagedActor) -> None:
        """It is not tried again by itself."""
        found = self._by_name.pop(actor.name, None)
        if found is not None:
            self._reply(found, Failed(actor.life.error or "it has died"))
        actor.stop(DRAIN, noop)

    def actor_ended(self, actor: ManagedActor) -> None:
        """Nothing is left of it."""
        found = self._by_name.get(actor.name)
        if found is not None and found.actor is actor:
            del self._by_name[actor.name]

    def actor_due(self, actor: ManagedActor) -> None:
        """It is not tried again."""

    # --- inside ---

    def _new_actor(self, name: str) -> ManagedActor:
        return ManagedActor(ActorSpec(name, self._class, ("logging", "proxy")), self._context, self)

    def _at_start(self, found: _Explainer, configure: Configure) -> dict[str, bytes]:
        params = params_at_start(configure)
        found.configured = configure if params else None
        return params

    def _configure(self, found: _Explainer, configure: Configure) -> None:
        if found.configured != configure and self._context.router.tell(found.actor.name, configure):
            found.configured = configure

    def _keep(self, found: _Explainer) -> None:
        if found.timer is not None:
            found.timer.cancel()
        found.timer = self._context.loop.call_later(IDLE_MAX, lambda: self._end(found))

    def _end(self, found: _Explainer) -> None:
        found.actor.stop(DRAIN, noop)
        if found.actor.life.state is ActorState.STOPPED:
            self.actor_ended(found.actor)

    def _reply(self, found: _Explainer, message: Done | Failed) -> None:
        waiting, found.waiting = found.waiting, []
        for reply in waiting:
            reply(message)

    def __repr__(self) -> str:
        return f"<Explainers: {', '.join(self._by_name) or 'none'}>"
