"""The settings that concern actors, and the configuration of the egress guard that is made of them and the listeners.

The egress guard knows where the product itself listens, which no client of a proxy may reach. When a listener is added
or removed, all actors get the new configuration: at once while they are few, in batches when they are many, since a
start of a thousand proxies would otherwise send a million messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.bus.loop import Loop
from actors.bus.messages.specs import EgressSpec
from actors.supervision.listeners.registry import ListenerRegistry
from config.net.addresses import tcp_parts
from config.settings.settings import Settings, plain


@dataclass(frozen=True, slots=True)
class SupervisionConfig:
    """The settings that concern actors; `services` are the product's own addresses besides proxies.

    `private_backends`: authentication back ends may have addresses that are not public.
    `groups` are the settings as actors get them, some with secrets; each actor gets those of its `ActorSpec` alone.
    """

    drain_timeout: float
    upgrade_drain: float
    egress_policy: str
    egress_allow: tuple[str, ...]
    upstreams_allow: tuple[str, ...] | None
    services: tuple[tuple[str, int], ...]
    private_backends: bool
    groups: dict[str, Any]

    @classmethod
    def of(cls, settings: Settings, api: tuple[str, int]) -> SupervisionConfig:
        """With the API bound at `api`. Where metrics are published with port 0, the collector reports its port."""
        published = tcp_parts(settings.metrics.publish)
        return cls(
            settings.server.drain_timeout,
            settings.server.upgrade_drain,
            settings.proxy.egress_guard,
            settings.proxy.egress_allow,
            settings.proxy.upstreams_allow,
            (api, published) if published and published[1] else (api,),
            settings.webhooks.allow_private,
            {**plain(settings), "telemetry": {"otlp": settings.telemetry.otlp.params()}},
        )


PERIOD = 0.1
"""Seconds between two changes for many actors."""
AT_ONCE = 50
"""Actors up to which every change is published at once."""


class EgressConfigPublisher:
    """`published` is what the actors should have; `changed` is called when it has changed."""

    def __init__(
        self, loop: Loop, listeners: ListenerRegistry, config: SupervisionConfig, changed: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._listeners = listeners
        self._changed = changed
        self._config = config
        self._batching = False
        self._seen = 0
        self._services: dict[str, tuple[str, int]] = {}
        self.published = self.now()

    def apply(self, config: SupervisionConfig) -> None:
        """Apply other settings; the caller sends the result."""
        self._config = config
        self.published = self.now()

    def now(self) -> EgressSpec:
        """The configuration at this moment."""
        config = self._config
        services = tuple(dict.fromkeys((*config.services, *self._services.values())))
        proxies = self._listeners.addresses()
        return EgressSpec(
            policy=config.egress_policy,
            allow=config.egress_allow,
            own=(*services, *((host, first) for host, first, last in proxies if first == last)),
            services=services,
            upstreams_allow=config.upstreams_allow,
            private_backends=config.private_backends,
            own_ranges=tuple(each for each in proxies if each[1] != each[2]),
        )

    def fresh(self) -> EgressSpec:
        """The configuration at this moment, made anew only when a listener was added or removed."""
        return self.published if self._listeners.changes == self._seen else self.now()

    def add_service(self, actor: str, address: tuple[str, int]) -> None:
        """An actor listens at an address that it has chosen itself."""
        if self._services.get(actor) != address:
            self._services[actor] = address
            self.published = self.now()
            self._changed()

    def refresh(self, actors: int) -> None:
        """Listeners may have been added or removed; `actors` is the number of receivers."""
        if self._listeners.changes == self._seen or self._batching:
            return
        self._seen = self._listeners.changes
        self.published = self.now()
        if actors > AT_ONCE:
            self._batching = True
            self._loop.call_later(PERIOD, lambda: self._end_batch(actors))
        self._changed()

    def _end_batch(self, actors: int) -> None:
        self._batching = False
        self.refresh(actors)
