"""Fixed actors that run only while a proxy that is active needs them, as that which checks the upstreams of pools."""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.mailbox import address_of
from actors.bus.messages.common import POOLS, Done
from actors.bus.messages.specs import POOL_KEY, CheckPoolOnce, CheckPools, EgressSpec
from actors.supervision.callbacks import noop
from actors.supervision.processes.actor_spec import ActorSpec, SupervisionContext
from actors.supervision.processes.lifecycle import ActorState
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


KEPT = 120.0
"""Seconds for which the actor runs for a pool that no proxy uses: longer than a check of all its upstreams takes."""
ASKED_MAX = 100


class PoolChecks(OccasionalActor):
    """An `OccasionalActor` that gets the pools."""

    _asked: tuple[bytes, ...] = ()
    """Pools to be checked once, as soon as the actor runs."""
    _kept_until = 0.0
    """The actor runs as long, so that it can check pools that no proxy uses."""
    _wanted = CheckPools(EgressSpec("public_only", (), ()))
    _sent: CheckPools | None = None

    def update(self, pools: dict[str, bytes], egress: EgressSpec) -> None:
        """These pools are to be checked: start the actor, send it what has changed, or have it end."""
        self._wanted = CheckPools(egress, pools)
        runs = self._actor.life.state is ActorState.RUNNING
        is_needed = bool(pools) or self._context.loop.now < self._kept_until
        self.need(is_needed)
        if is_needed and runs and self._sent != self._wanted and self._context.router.tell(POOLS, self._wanted):
            self._sent = self._wanted

    def check_once(self, packed: bytes | None) -> Done:
        """Check the upstreams of this pool, if there is one, whether a proxy uses it or not."""
        if packed is None:
            return Done()
        loop = self._context.loop
        self._kept_until = loop.now + KEPT
        loop.call_later(KEPT, self._let_go)
        if packed not in self._asked:
            self._asked = (*self._asked, packed)[-ASKED_MAX:]
        self.need(True)
        if self._actor.life.state is ActorState.RUNNING:
            self._send_asked(POOLS)
        return Done()

    def _let_go(self) -> None:
        if not self._wanted.pools and self._context.loop.now >= self._kept_until:
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
