"""A fixed actor that runs only while a proxy that is active needs it."""

from __future__ import annotations

from collections.abc import Callable

from actors.supervision.callbacks import noop
from actors.supervision.processes.actor_observer import ActorObserver
from actors.supervision.processes.actor_spec import ActorSpec, SupervisionContext
from actors.supervision.processes.lifecycle import State
from actors.supervision.processes.managed_actor import ManagedActor


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
        elif self._actor.life.state in (State.STOPPED, State.DRAINING):
            self._fixed[self._actor.name] = self._actor
            self._actor.start()

    def ended(self) -> None:
        """It has drained and ended."""
        if not self._is_needed:
            self._fixed.pop(self._actor.name, None)

    def _stop(self) -> None:
        state = self._actor.life.state
        if state not in (State.STOPPED, State.DRAINING):
            self._actor.stop(0.0, noop)
            self._on_stop()
        if state is State.FAILED:  # there is no process that would end
            self.ended()
