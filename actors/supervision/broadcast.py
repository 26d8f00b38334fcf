"""What all actors have to hear of, such as other settings: those who are there now, and those who start later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from actors.bus.mailbox import MailboxRouter
from actors.supervision.callbacks import CountdownLatch
from actors.supervision.processes.lifecycle import State
from actors.supervision.processes.managed_actor import ManagedActor

TOLD_MAX = 1.0
"""Seconds that an actor may take to answer that it has heard of other settings."""


class Broadcaster:
    """Of each kind of message the last one is kept."""

    def __init__(self, router: MailboxRouter) -> None:
        self._router = router
        self._for_all: dict[type[Any], Any] = {}
        self._for_proxies: dict[type[Any], Any] = {}

    def all(self, actors: Iterable[ManagedActor], message: Any, gate: CountdownLatch) -> None:
        """Tell all actors, which these are at present; `gate` waits for them."""
        self._for_all[type(message)] = message
        self.these(actors, message, gate)

    def proxies(self, actors: Iterable[ManagedActor], message: Any, gate: CountdownLatch) -> None:
        """Tell all forwarding actors, which these are at present; `gate` waits for them."""
        self._for_proxies[type(message)] = message
        self.these(actors, message, gate)

    def these(self, actors: Iterable[ManagedActor], message: Any, gate: CountdownLatch) -> None:
        """Tell these alone; `gate` waits for those of them that run."""
        for actor in actors:
            if actor.life.state is State.RUNNING:
                self._router.ask(actor.name, message, _heard(gate.key()), TOLD_MAX)

    def catch_up(self, name: str, forwards: bool) -> None:
        """Tell an actor what was said before it was there."""
        for message in (*self._for_all.values(), *(self._for_proxies.values() if forwards else ())):
            self._router.tell(name, message)


def _heard(key: Callable[[], None]) -> Callable[[Any], None]:
    """Whatever the answer is, there was one, or there will be none."""
    return lambda _reply: key()
