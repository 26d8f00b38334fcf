"""The running product: loop, bus, zygote, fleet and signals put together.

Signals only inject a command into the loop. SIGTERM and SIGINT begin the end, a second one of them is the end, unless
it is the same at nearly the same time: `timeout` sends SIGTERM to its child and to the group. SIGHUP rereads the
configuration; SIGUSR2 upgrades to the program that is installed now; SIGCHLD reaps what a dead zygote left behind (the
supervisor is a child subreaper).
"""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from actors.bus.events import Forwarder, event_topic, new_event
from actors.bus.loop import Loop, Timer
from actors.bus.mailbox import MailboxRouter
from actors.bus.messages.common import (
    API,
    ApplySettings,
    Done,
    Failed,
    Terminated,
)
from actors.bus.messages.fleet import (
    ApplyOverrides,
    DescribeProgram,
    ListenerRefused,
    Program,
    Upgrade,
    ValidateSettings,
)
from actors.bus.messages.specs import ProxySpec
from actors.process import Boot, set_up_logging
from actors.supervision.actor_specs import api_spec, tls_spec
from actors.supervision.actor_supervisor import ActorSupervisor
from actors.supervision.callbacks import CountdownLatch
from actors.supervision.config import ActorClasses, SupervisionConfig
from actors.supervision.effective_settings import EffectiveSettings, shadowed_keys
from actors.supervision.listeners.api import ApiListener
from actors.supervision.listeners.registry import BACKLOG, ListenerRegistry, ListenError
from actors.supervision.listeners.socket_activation import InheritedListeners
from actors.supervision.processes import reaping
from actors.supervision.processes.managed_actor import ActorSpec, SupervisionContext
from actors.supervision.processes.spawner import Spawner
from actors.supervision.systemd import notify, notify_reloading, watchdog_period
from actors.supervision.upgrade.handover import (
    SIGNALS,
    Handover,
    Predecessor,
    exec_successor,
    last_signals,
    unblock_signals,
)
from actors.supervision.upgrade.preflight import own_command
from actors.supervision.upgrade.upgrade import ProgramUpgrade
from config import VERSION
from config.files.paths import DataDir, RunDir
from config.model.events import checked
from config.settings.runtime import InvalidOverride, Stored
from config.settings.settings import ConfigError, Settings, plain

log = logging.getLogger(__name__)

_PR_SET_CHILD_SUBREAPER = 36
STATUS_PERIOD = 10.0
END_GRACE = 5.0
"""Seconds beyond `server.drain_timeout` after which whatever still lives is killed."""
SAME_SIGNAL = 0.3
"""Seconds within which the same signal is the same order: many senders signal a process and its group."""
GROUP_WAIT = 0.5
"""Seconds that a signal to the whole group may take to reach this process after it has reached an actor."""


@dataclass(frozen=True, slots=True)
class RuntimeResources:
    """Where the product lives: its directories, the descriptors of their locks, the API's listening socket."""

    data: DataDir
    run: RunDir
    locks: tuple[int, ...]
    api_socket: socket.socket
    inherited: InheritedListeners = field(default_factory=InheritedListeners)
    """The listening sockets that were there before; the API's is taken already."""
    predecessors: Sequence[Predecessor] = ()
    """The forwarding actors of an older program that this process was."""


class SupervisorProcess:
    """The supervisor's process. `reload` gives the settings anew or raises `ConfigError`; `on_ready` greets.

    `settings` are those of the configuration, `stored` what was set through the API.
    """

    def __init__(
        self,
        settings: Settings,
        resources: RuntimeResources,
        reload: Callable[[], Settings],
        on_ready: Callable[[], None],
        classes: ActorClasses | None = None,
        stored: Stored | None = None,
    ) -> None:
        self._effective = EffectiveSettings.of(settings, stored or {})
        settings = self._effective.now
        self._resources = resources
        address = settings.server.host, settings.server.port
        inherited = resources.inherited
        self._api = ApiListener(resources.api_socket, address, resources.run, time.monotonic, inherited.store)
        self._reload = reload
        self._on_ready = on_ready
        self._last_instance = 0
        self._ending = False
        self._ended_by: tuple[str, float] = "", 0.0
        self._handing_over = False
        self._handover_timer: Timer | None = None
        """Of an upgrade: when the next program comes, whatever has not ended."""
        self._started_at, self._is_ready = time.time(), False
        self._status = 0
        self._wake = self._take_signals()
        _become_subreaper()
        _raise_descriptor_limit()
        run = resources.run
        self._loop = Loop()
        self._upgrade = ProgramUpgrade(self._loop, self._upgrade_blocker, self._hand_over)
        self._context: zmq.Context[Any] = zmq.Context()
        self._router = MailboxRouter(self._loop, self._context, run.mailbox, self._receive)
        self._events = Forwarder(self._loop, self._context, run.events_in, run.events_out)
        self._spawner = Spawner(self._loop, settings.logging.level, settings.logging.format, resources.locks)
        context = SupervisionContext(self._loop, self._router, self._spawner, self._new_boot)
        self._inner = _inner_socket(run.api_inner) if settings.server.tls.enabled else None
        classes, config = classes or ActorClasses(), self._config()
        context.settings.put(config.groups)
        specs = self._api_specs(classes, config)
        listeners = ListenerRegistry(time.monotonic, inherited.listen, inherited.store)
        self._actors = ActorSupervisor(
            context, self._events, classes, config, *specs, listeners=listeners, predecessors=resources.predecessors
        )
        self._actors.on_ready = self._ready

    def run(self, desired: Iterable[ProxySpec]) -> int:
        """Serve until a signal ends it; the exit status."""
        self._loop.watch(self._wake, select.EPOLLIN, lambda _mask: self._on_signals(os.read(self._wake, 4096)))
        period = watchdog_period()
        if period is not None:
            self._loop.call_every(period, self._reassure)
        for sentence in shadowed_keys(self._effective.base, self._effective.stored):
            log.warning("%s", sentence)
        self._loop.call_every(STATUS_PERIOD, self._api.lapse)
        self._loop.call_every(STATUS_PERIOD, lambda: notify(f"STATUS={self._actors.summary}"))
        self._actors.start(desired)
        self._resources.inherited.end_unclaimed()
        self._loop.run()
        while self._handing_over and self._stop_requested():
            self._loop.run()
        if self._handing_over:
            self._exec_successor()
        self._close()
        return self._status

    # --- parts ---

    @property
    def _settings(self) -> Settings:
        return self._effective.now

    @property
    def _is_over(self) -> bool:
        """Does the product end, and not for another program? Then its sockets are closed."""
        return self._ending and not self._handing_over

    def _config(self) -> SupervisionConfig:
        return SupervisionConfig.of(self._settings, self._api.bound)

    def _api_specs(self, classes: ActorClasses, config: SupervisionConfig) -> list[ActorSpec]:
        """The API, at its own address or behind the TLS front that has it. Which of the two holds until the end."""
        inner = self._inner
        params = {"supervisor_pid": os.getpid(), "behind_tls": inner is not None}
        if inner is None:
            return [api_spec(classes, config, params, lambda: [self._api.socket])]
        return [
            api_spec(classes, config, params, lambda: [inner]),
            tls_spec(classes, lambda: [self._api.socket]),
        ]

    def _settings_for_api(self) -> ApplySettings:
        return ApplySettings(plain(self._settings))

    def _new_boot(self, name: str, settings: dict[str, Any], params: dict[str, Any]) -> Boot:
        self._last_instance = max(self._last_instance + 1, time.time_ns() // 1_000)
        return Boot(
            name, self._last_instance, str(self._resources.run.path), str(self._resources.data.path), settings, params
        )

    def _receive(self, sender: str, message: Any, answer: Callable[[Any], None]) -> None:
        if isinstance(message, ValidateSettings):
            self._prepare(message, answer)
        elif isinstance(message, ApplyOverrides):
            self._put_settings(message, answer)
        elif isinstance(message, Upgrade):
            self._upgrade.upgrade(answer)
        elif isinstance(message, Terminated):
            self._terminated(sender, answer)
        elif isinstance(message, DescribeProgram):
            answer(Program(VERSION, self._started_at, self._is_ready))
        else:
            self._actors.receive(sender, message, answer)

    def _terminated(self, sender: str, answer: Callable[[Any], None]) -> None:
        """An actor got a SIGTERM. The same one may be on its way to us."""
        if self._is_over:
            answer(Done())
            return

        def judge() -> None:
            if not self._is_over:
                self._actors.terminated(sender)
            answer(Done() if self._is_over else Failed(f"only {sender} was to end"))

        self._loop.call_later(GROUP_WAIT, judge)

    def _ready(self) -> None:
        self._is_ready = True
        notify("READY=1", f"STATUS={self._actors.summary}")
        self._on_ready()

    def _reassure(self) -> None:
        """Only while every process is known to turn, or to be mended by us, may systemd believe in the whole."""
        trouble = self._actors.beyond_help
        if trouble:
            log.critical("watchdog ping withheld: %s", trouble)
        else:
            notify("WATCHDOG=1")

    # --- signals ---

    def _take_signals(self) -> int:
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (*SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda _number, _frame: None)
        unblock_signals()
        return reading

    def _on_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                self._reap()
            elif number == signal.SIGHUP:
                self._reread()
            elif number == signal.SIGUSR2:
                self._upgrade.upgrade(lambda _outcome: None)
            elif number in (signal.SIGTERM, signal.SIGINT):
                self._end(signal.Signals(number).name)

    def _reap(self) -> None:
        for pid, how in reaping.ended():
            if not self._upgrade.reaped(pid, how):
                self._spawner.reaped(pid, how)

    def _reread(self) -> None:
        if self._ending:
            log.info("ignoring SIGHUP: shutting down")
            return
        before = self._settings
        notify_reloading()
        try:
            waiting = self._effective.reread(self._reload())
        except (ConfigError, InvalidOverride) as error:
            log.error("reload failed, keeping the current configuration: %s", error)
            notify("READY=1", "STATUS=reload failed; see the log")
            return
        self._apply(before, lambda: self._reloaded(waiting))
        log.info("the configuration was read again")
        if waiting:
            log.warning("these keys need a restart to take effect: %s", ", ".join(waiting))
        for sentence in shadowed_keys(self._effective.base, self._effective.stored):
            log.warning("%s", sentence)

    def _reloaded(self, waiting: list[str]) -> None:
        """All actors have acknowledged the reloaded configuration."""
        notify("READY=1", f"STATUS={self._actors.summary}")
        event = new_event("settings.reloaded", checked("settings.reloaded", {"needs_restart": waiting}))
        self._events.publish(event_topic(event), event)

    # --- settings of the API ---

    def _prepare(self, message: ValidateSettings, answer: Callable[[Any], None]) -> None:
        try:
            server = self._effective.preview(message.stored).server
            if not self._is_over:
                self._api.prepare((server.host, server.port))
            elif (server.host, server.port) != self._api.address:
                raise ListenError("port", "can't be tried now: the product is ending")
        except InvalidOverride as error:
            answer(Failed(str(error)))
        except ListenError as error:
            answer(ListenerRefused(error.field, error.error))
        else:
            answer(Done())

    def _put_settings(self, message: ApplyOverrides, answer: Callable[[Any], None]) -> None:
        before = self._settings
        try:
            server = self._effective.preview(message.stored).server
            if not self._is_over:
                self._api.switch((server.host, server.port))
            self._effective.put(message.stored)
        except (InvalidOverride, ListenError) as error:
            answer(Failed(str(error)))
            return
        if self._is_over:
            answer(self._settings_for_api())  # it is stored, and for the next start
        else:
            self._apply(before, lambda: answer(self._settings_for_api()), but=API)

    def _apply(self, before: Settings, then: Callable[[], None], but: str = "") -> None:
        """Other settings are effective; `then` is called when all actors, `but` apart, have applied them."""
        latch, style = CountdownLatch(then), self._settings.logging
        if style != before.logging:
            set_up_logging(style.level, style.format, style.output)
            self._spawner.set_logging(style.level, style.format)
        self._actors.apply(self._config(), latch, but)
        latch.release()

    # --- upgrade ---

    def _upgrade_blocker(self) -> str:
        """Why there can be no other program now: the end, or directories which this one can tell to be others."""
        if self._ending:
            return "the product is ending"
        try:
            fresh = self._reload()
        except ConfigError:
            return ""  # the next program may know better; its preflight will report it
        moved = [
            name for name in ("data_dir", "run_dir") if getattr(fresh, name) != getattr(self._effective.base, name)
        ]
        return f"{' and '.join(moved)}: changed, which needs a restart" if moved else ""

    def _hand_over(self) -> None:
        log.info("upgrade: proxies keep serving, other actors restart with the new version")
        self._ending = self._handing_over = True
        notify_reloading()
        self._handover_timer = self._loop.call_later(self._settings.server.drain_timeout + END_GRACE, self._loop.stop)
        self._actors.hand_over(self._loop.stop)

    def _stop_requested(self) -> bool:
        """True if the product was asked to end, just when all was ready for the next program."""
        numbers = last_signals(self._wake)
        if not {signal.SIGTERM, signal.SIGINT} & set(numbers):
            return False
        unblock_signals()
        self._on_signals(numbers)
        return True

    def _exec_successor(self) -> None:
        """Pass on what must not end, and become the next program. Returns only if that is impossible."""
        self._actors.hasten_fixed()
        listeners, predecessors = self._actors.left()
        handover = Handover([self._api.socket.fileno(), *listeners], list(self._resources.locks), predecessors)
        self._spawner.close()
        self._router.close()
        self._events.close()
        notify("WATCHDOG=1", "STATUS=upgrading")
        try:
            exec_successor(own_command(), os.environ, handover)
        except OSError as error:
            log.critical("the next program can't be executed, and the product ends: %s", error)
            self._status = 1

    def _end(self, why: str) -> None:
        self._upgrade.cancel()
        if self._handing_over:
            self._handing_over = self._ending = False  # whoever ends it doesn't want a successor
            if self._handover_timer is not None:
                self._handover_timer.cancel()
        if self._ending and self._ended_by[0] == why and time.monotonic() - self._ended_by[1] < SAME_SIGNAL:
            return
        if self._ending:
            log.warning("%s again: ending at once", why)
            self._status = 1
            self._loop.stop()
            return
        self._ending = True
        self._ended_by = why, time.monotonic()
        log.info("%s: draining for up to %g s", why, self._settings.server.drain_timeout)
        longest = self._settings.server.drain_timeout + END_GRACE
        notify("STOPPING=1", "STATUS=draining", f"EXTEND_TIMEOUT_USEC={int((longest + END_GRACE) * 1e6)}")
        self._api.close()
        if self._inner is not None:
            self._inner.close()
        self._loop.call_later(longest, self._out_of_time)
        self._actors.end(self._loop.stop)

    def _out_of_time(self) -> None:
        log.error("some actors have not ended in time and are killed")
        self._loop.stop()

    def _close(self) -> None:
        self._actors.hasten()
        self._actors.close()
        self._spawner.close()
        self._router.close()
        self._events.close()
        self._context.term()
        self._loop.close()


def _inner_socket(path: Path) -> socket.socket:
    """Where the API listens behind its front; the run directory, 0700 and locked, keeps all others out."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _become_subreaper() -> None:
    """Children of a dead zygote become ours, so that nothing stays a zombie (prctl(2))."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        log.warning("not a child subreaper: %s", os.strerror(ctypes.get_errno()))


def _raise_descriptor_limit() -> None:
    """As many descriptors as the system allows: every tunnel takes two, and actors inherit the limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
