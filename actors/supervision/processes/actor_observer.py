"""What a managed actor reports to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from actors.supervision.processes.managed_actor import ManagedActor


class ActorObserver(Protocol):
    """What a managed actor reports to, and where it gets its label."""

    def label(self, name: str, index: int | None = None) -> str:
        """What logs call the actor of this name, or one of its workers where there are several."""

    def actor_ready(self, actor: ManagedActor, instance: int) -> None:
        """A process is ready and will be current next; this is the time to configure it."""

    def actor_up(self, actor: ManagedActor) -> None:
        """It runs."""

    def actor_down(self, actor: ManagedActor) -> None:
        """It died; `actor.life.error` is the reason."""

    def actor_ended(self, actor: ManagedActor) -> None:
        """Its last process has drained and ended, and none is wanted; or it sleeps."""

    def actor_due(self, actor: ManagedActor) -> None:
        """Its back-off is over: start it if it is still desired."""
