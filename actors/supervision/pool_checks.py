"""The actor that checks the upstreams of pools: it runs while a proxy that is active can use a pool."""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.mailbox import address_of
from actors.bus.messages.common import POOLS
from actors.bus.messages.pools import CheckPools
from actors.bus.messages.specs import EgressSpec
from actors.supervision.callbacks import noop
from actors.supervision.processes.actor_observer import ActorObserver
from actors.supervision.processes.actor_spec import ActorSpec, SupervisionContext
from actors.supervision.processes.lifecycle import State
from actors.supervision.processes.managed_actor import ManagedActor


class PoolChecks:
    """`fixed` has the actor while it runs or ends; `on_stop` is called when it is not to run any more."""

    def __init__(
        self,
        spec: ActorSpec,
        context: SupervisionContext,
        observer: ActorObserver,
        fixed: dict[str, ManagedActor],
        on_stop: Callable[[], None],
    ) -> None:
        self._context = context
        self._fixed = fixed
        self._on_stop = on_stop
        self._actor = ManagedActor(spec, context, observer)
        self._wanted = CheckPools(EgressSpec("public_only", (), ()))
        self._sent: CheckPools | None = None

    def update(self, pools: dict[str, bytes], egress: EgressSpec) -> None:
        """These pools are to be checked: start the actor, send it what has changed, or have it end."""
        self._wanted = CheckPools(egress, pools)
        state = self._actor.life.state
        if not pools:
            self._stop()
        elif state in (State.STOPPED, State.DRAINING):
            self._fixed[POOLS] = self._actor
            self._actor.start()
        elif state is State.RUNNING and self._sent != self._wanted and self._context.router.tell(POOLS, self._wanted):
            self._sent = self._wanted

    def configure(self, instance: int) -> None:
        """A process is ready for work."""
        to = address_of(POOLS, instance)
        self._sent = self._wanted if self._context.router.tell(to, self._wanted) else None

    def ended(self) -> None:
        """It has drained and ended."""
        if not self._wanted.pools:
            self._fixed.pop(POOLS, None)

    def _stop(self) -> None:
        state = self._actor.life.state
        if state not in (State.STOPPED, State.DRAINING):
            self._actor.stop(0.0, noop)
            self._on_stop()
        if state is State.FAILED:  # there is no process that would end
            self.ended()
