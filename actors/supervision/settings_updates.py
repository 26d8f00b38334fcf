"""Changes of the settings while the product runs: through the API, in two steps, or by SIGHUP from the
configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable

from actors.bus.events import Forwarder, event_topic, new_event
from actors.bus.mailbox import Reply
from actors.bus.messages.common import API, ApplySettings, Done, Failed
from actors.bus.messages.supervision import ApplyOverrides, SettingSources, ValidateSettings
from actors.process import set_up_logging
from actors.supervision.actor_supervisor import ActorSupervisor
from actors.supervision.callbacks import CountdownLatch
from actors.supervision.config import SupervisionConfig
from actors.supervision.effective_settings import EffectiveSettings, shadowed_keys
from actors.supervision.processes.spawner import Spawner
from actors.supervision.program_lifecycle import ProgramLifecycle
from actors.supervision.systemd import notify, notify_reloading
from config.model.subscriptions import checked
from config.settings.loading import Origins
from config.settings.runtime import InvalidOverride
from config.settings.settings import ConfigError, Settings, plain

log = logging.getLogger(__name__)


class SettingsUpdates:
    """`load` returns the configuration, read again, and `origins` where it comes from; both raise `ConfigError`.

    `bound` is where the API listens.
    """

    def __init__(
        self,
        effective: EffectiveSettings,
        load: Callable[[], Settings],
        origins: Callable[[], Origins],
        life: ProgramLifecycle,
        bound: tuple[str, int],
        actors: ActorSupervisor,
        spawner: Spawner,
        events: Forwarder,
    ) -> None:
        self._effective = effective
        self._load = load
        self._origins = origins
        self._life = life
        self._bound = bound
        self._actors = actors
        self._spawner = spawner
        self._events = events

    def warn_of_shadowed_keys(self) -> None:
        """Log each key of the configuration that an override of the API hides."""
        for sentence in shadowed_keys(self._effective.base, self._effective.stored):
            log.warning("%s", sentence)

    def validate(self, message: ValidateSettings, reply: Reply) -> None:
        """Check settings that are about to be stored."""
        try:
            self._effective.preview(message.stored)
        except InvalidOverride as error:
            reply(Failed(str(error)))
        else:
            reply(Done())

    def put(self, message: ApplyOverrides, reply: Reply) -> None:
        """Apply settings that are stored; the reply follows when all actors have applied them."""
        before = self._effective.now
        try:
            self._effective.put(message.stored)
        except InvalidOverride as error:
            reply(Failed(str(error)))
            return
        if self._life.closes_listeners:
            reply(self._for_api())  # it is stored, and for the next start
        else:
            self._apply(before, lambda: reply(self._for_api()), but=API)

    def describe(self, reply: Reply) -> None:
        """Each key with its value and where that comes from."""
        reply(SettingSources(tuple(each.plain() for each in self._effective.described())))

    def reload(self) -> None:
        """Read the configuration again and apply it; a bad one changes nothing."""
        if self._life.is_ending:
            log.info("ignoring SIGHUP: shutting down")
            return
        before = self._effective.now
        notify_reloading()
        try:
            waiting = self._effective.reread(self._load(), self._origins())
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
        notify("READY=1", f"STATUS={self._actors.summary}")
        event = new_event("settings.reloaded", checked("settings.reloaded", {"needs_restart": waiting}))
        self._events.publish(event_topic(event), event)

    def _for_api(self) -> ApplySettings:
        return ApplySettings(plain(self._effective.now))

    def _apply(self, before: Settings, then: Callable[[], None], but: str = "") -> None:
        """Make the effective settings felt; `then` is called when all actors, `but` apart, have applied them."""
        settings = self._effective.now
        style = settings.logging
        if style != before.logging:
            set_up_logging(style.level, style.format, style.output)
            self._spawner.set_logging(style.level, style.format)
        latch = CountdownLatch(then)
        self._actors.apply(SupervisionConfig.of(settings, self._bound), latch, but)
        latch.release()
