"""The settings as they concern actors, their changes while the product runs, and the configuration of the egress guard
that is made of them and the listeners.

The effective settings are the operator's configuration with the overrides made through the API on top. That base is
read at the start and again at SIGHUP; some of its keys hold until the next start (`UNTIL_RESTART`), so a fresh base
keeps the old values of those, and the API reports what is effective. Overrides come in two steps: checked before they
are stored, and applied after it.

The egress guard knows where the product itself listens, which no client of a proxy may reach. When a listener is added
or removed, all actors get the new configuration: at once while they are few, in batches when they are many, since a
start of a thousand proxies would otherwise send a million messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actors.bus.events import Forwarder, event_topic, new_event
from actors.bus.loop import Loop
from actors.bus.mailbox import Reply
from actors.bus.messages.common import API, ApplySettings, Done, Failed
from actors.bus.messages.specs import EgressSpec
from actors.bus.messages.supervision import ApplyOverrides, SettingSources, ValidateSettings
from actors.process import set_up_logging
from actors.supervision.callbacks import CountdownLatch
from actors.supervision.lifecycle import ProgramLifecycle
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.processes.spawner import Spawner
from actors.supervision.systemd import notify, notify_reloading
from config.model.subscriptions import checked
from config.net.addresses import tcp_parts
from config.settings.loading import UNTIL_RESTART, EffectiveValue, Origins, Reading, described, waiting
from config.settings.runtime import InvalidOverride, Stored, merge, shadowed_keys, value_of, with_overrides
from config.settings.settings import ConfigError, Settings, plain

if TYPE_CHECKING:  # it uses this module
    from actors.supervision.actor_supervisor import ActorSupervisor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SupervisionConfig:
    """The settings that concern actors; `services` are the product's own addresses besides proxies.

    `private_backends`: authentication back ends may have addresses that are not public. `first_policy` is the name of
    the policy that comes before that of each proxy, empty for none.
    `groups` are the settings as actors get them, some with secrets; each actor gets those of its `ActorSpec` alone.
    """

    drain_timeout: float
    upgrade_drain: float
    egress_policy: str
    egress_allow: tuple[str, ...]
    upstreams_allow: tuple[str, ...] | None
    services: tuple[tuple[str, int], ...]
    private_backends: bool
    first_policy: str
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
            settings.proxy.policy,
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


@dataclass(slots=True)
class EffectiveSettings:
    """`now` is effective. Raises `config.settings.runtime.InvalidOverride` when `stored` is invalid."""

    base: Settings
    stored: Stored
    now: Settings
    origins: Origins = field(default_factory=Origins)
    latest: Reading | None = None
    """The configuration as it was read last, with what waits for a restart."""

    @classmethod
    def of(cls, base: Settings, stored: Stored, origins: Origins | None = None) -> EffectiveSettings:
        """At the start."""
        return cls(base, stored, with_overrides(base, stored), origins or Origins())

    def preview(self, stored: Stored) -> Settings:
        """The effective settings with `stored` as overrides."""
        return with_overrides(self.base, stored)

    def put(self, stored: Stored) -> None:
        """Make `stored` the overrides."""
        self.now = self.preview(stored)
        self.stored = stored

    def reread(self, fresh: Settings, origins: Origins | None = None) -> list[str]:
        """Make `fresh` the configuration; returns the keys that have changed and wait for a restart."""
        names = [name for name in UNTIL_RESTART if value_of(fresh, name) != value_of(self.base, name)]
        self.latest = Reading(fresh, origins or Origins())
        self.base = _keeping(fresh, self.base, names)
        self.origins = self.latest.origins.but(self.origins, waiting(self.base, fresh))
        self.now = self.preview(self.stored)
        return names

    def described(self) -> list[EffectiveValue]:
        """Each key with its value, the source of it, and what a change needs; without those of the first start."""
        found = described(Reading(self.base, self.origins), self.stored, self.now, self.latest)
        return [each for each in found if each.change != "first_start"]


def _keeping(fresh: Settings, before: Settings, names: list[str]) -> Settings:
    updates: dict[str, Any] = {name: value_of(before, name) for name in names if "." not in name}
    kept: Stored = {}
    for name in names:
        group, _, key = name.partition(".")
        if key:
            kept = merge(kept, {group: {key: value_of(before, name)}})
    for group, values in kept.items():
        updates[group] = getattr(fresh, group).model_copy(update=values)
    return fresh.model_copy(update=updates)


@dataclass(frozen=True, slots=True, eq=False)
class SettingsUpdates:
    """`load` returns the configuration, read again, and `origins` where it comes from; both raise `ConfigError`.

    `bound` is where the API listens.
    """

    effective: EffectiveSettings
    load: Callable[[], Settings]
    origins: Callable[[], Origins]
    life: ProgramLifecycle
    bound: tuple[str, int]
    actors: ActorSupervisor
    spawner: Spawner
    events: Forwarder

    def warn_of_shadowed_keys(self) -> None:
        """Log each key of the configuration that an override of the API hides."""
        for sentence in shadowed_keys(self.effective.base, self.effective.stored):
            log.warning("%s", sentence)

    def validate(self, message: ValidateSettings, reply: Reply) -> None:
        """Check settings that are about to be stored."""
        try:
            self.effective.preview(message.stored)
        except InvalidOverride as error:
            reply(Failed(str(error)))
        else:
            reply(Done())

    def put(self, message: ApplyOverrides, reply: Reply) -> None:
        """Apply settings that are stored; the reply follows when all actors have applied them."""
        before = self.effective.now
        try:
            self.effective.put(message.stored)
        except InvalidOverride as error:
            reply(Failed(str(error)))
            return
        if self.life.closes_listeners:
            reply(self._for_api())  # it is stored, and for the next start
        else:
            self._apply(before, lambda: reply(self._for_api()), but=API)

    def describe(self, reply: Reply) -> None:
        """Each key with its value and where that comes from."""
        reply(SettingSources(tuple(each.plain() for each in self.effective.described())))

    def reload(self) -> None:
        """Read the configuration again and apply it; a bad one changes nothing."""
        if self.life.is_ending:
            log.info("ignoring SIGHUP: shutting down")
            return
        before = self.effective.now
        notify_reloading()
        try:
            waiting = self.effective.reread(self.load(), self.origins())
        except (ConfigError, InvalidOverride) as error:
            log.error("reload failed, keeping the current configuration: %s", error)
            notify("READY=1", "STATUS=reload failed; see the log")
            return
        self._apply(before, lambda: self._reloaded(waiting))
        log.info("the configuration was read again")
        if waiting:
            log.warning("these keys need a restart to take effect: %s", ", ".join(waiting))
        self.warn_of_shadowed_keys()

    def _reloaded(self, waiting: list[str]) -> None:
        """All actors have acknowledged the reloaded configuration."""
        notify("READY=1", f"STATUS={self.actors.summary}")
        event = new_event("settings.reloaded", checked("settings.reloaded", {"needs_restart": waiting}))
        self.events.publish(event_topic(event), event)

    def _for_api(self) -> ApplySettings:
        return ApplySettings(plain(self.effective.now))

    def _apply(self, before: Settings, then: Callable[[], None], but: str = "") -> None:
        """Make the effective settings felt; `then` is called when all actors, `but` apart, have applied them."""
        settings = self.effective.now
        style = settings.logging
        if style != before.logging:
            set_up_logging(style.level, style.format, style.output)
            self.spawner.set_logging(style.level, style.format)
        latch = CountdownLatch(then)
        self.actors.apply(SupervisionConfig.of(settings, self.bound), latch, but)
        latch.release()
