"""What every forwarding actor has to know of the others: where the product itself listens, which nobody may reach.

Listeners come and go, and each time all actors are to be told: at once while they are few, in batches when they are
many, since starting a thousand proxies would tell all of all each time.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Loop
from actors.bus.messages.specs import EgressSpec
from actors.supervision.config import SupervisionConfig
from actors.supervision.listeners.registry import ListenerRegistry

PERIOD = 0.1
"""Seconds between two changes that are told to many."""
AT_ONCE = 50
"""Actors up to which every change is told without waiting for the next."""


class EgressConfigPublisher:
    """`told` is what the actors should know; `changed` is called when it is another."""

    def __init__(
        self, loop: Loop, listeners: ListenerRegistry, config: SupervisionConfig, changed: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._listeners = listeners
        self._changed = changed
        self._config = config
        self._timed = False
        self._seen = 0
        self._found: dict[str, tuple[str, int]] = {}
        self.told = self.now()

    def apply(self, config: SupervisionConfig) -> None:
        """Other settings are in force."""
        self._config = config
        self.told = self.now()

    def now(self) -> EgressSpec:
        """What is so at this moment."""
        config = self._config
        services = tuple(dict.fromkeys((*config.services, *self._found.values())))
        own = (*services, *sorted(self._listeners.addresses()))
        return EgressSpec(config.egress_policy, config.egress_allow, own, services, config.upstreams_allow)

    def found(self, actor: str, address: tuple[str, int]) -> None:
        """An actor listens at an address that it has chosen itself."""
        if self._found.get(actor) != address:
            self._found[actor] = address
            self.told = self.now()
            self._changed()

    def refresh(self, actors: int) -> None:
        """Listeners may have come or gone, and there are so many actors to be told."""
        if self._listeners.changes == self._seen or self._timed:
            return
        self._seen = self._listeners.changes
        self.told = self.now()
        if actors > AT_ONCE:
            self._timed = True
            self._loop.call_later(PERIOD, lambda: self._due(actors))
        self._changed()

    def _due(self, actors: int) -> None:
        self._timed = False
        self.refresh(actors)
