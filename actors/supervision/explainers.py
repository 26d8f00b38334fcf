"""Processes that explain decisions for proxies that sleep, so that a question wakes none.

They are no part of the proxy: nothing of them is reported or counted, and its state stays `sleeping`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from actors.bus.loop import Timer
from actors.bus.mailbox import Reply
from actors.bus.messages.common import Done, Failed, actor_proxy, explainer_name
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.supervision import StartExplainer
from actors.supervision.actor_specs import params_at_start
from actors.supervision.callbacks import noop
from actors.supervision.processes.actor_spec import ActorSpec, SupervisionContext
from actors.supervision.processes.lifecycle import ActorState
from actors.supervision.processes.managed_actor import ManagedActor

log = logging.getLogger(__name__)

KEPT = 10.0
"""Seconds without a question after which one ends."""
MOST = 16
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
        if found is None and len(self._by_name) >= MOST:
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
        found.timer = self._context.loop.call_later(KEPT, lambda: self._end(found))

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
