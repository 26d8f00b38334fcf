"""The running product: loop, bus, zygote, actors and signals put together.

The life of the program is a table in `actors.supervision.lifecycle`. Signals only inject a command into the
loop. SIGTERM and SIGINT begin a drain, and a second one ends it at once, unless it is the same signal at nearly the
same time: `timeout` sends SIGTERM to its child and to the group. SIGHUP reads the configuration again; SIGUSR2 upgrades
to the installed program; SIGCHLD reaps the children of a dead zygote (the supervisor is a child subreaper).
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import zmq

from actors import signals
from actors.bus.events import Forwarder
from actors.bus.loop import Loop, Timer
from actors.bus.mailbox import MailboxRouter, Reply
from actors.bus.messages.common import Done, Failed, Terminated
from actors.bus.messages.specs import FleetObject, ProxySpec
from actors.bus.messages.supervision import (
    ApplyOverrides,
    DescribeProgram,
    DescribeSettings,
    Program,
    Upgrade,
    ValidateSettings,
)
from actors.garbage import end_start
from actors.process import Boot
from actors.supervision.actor_supervisor import ActorSupervisor
from actors.supervision.fd_limit import raise_limit
from actors.supervision.handover import (
    SIGNALS,
    Handover,
    Predecessor,
    exec_successor,
    instances_of,
    last_signals,
    unblock_signals,
)
from actors.supervision.lifecycle import ProgramEvent, ProgramLifecycle, ProgramState
from actors.supervision.listeners.bind import bound_address, inner_listener
from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.listeners.socket_activation import InheritedListeners
from actors.supervision.processes.actor_specs import (
    ActorClasses,
    ActorSpec,
    SupervisionContext,
    api_spec,
    lab_spec,
    tls_spec,
)
from actors.supervision.processes.live_state_files import LiveStateFiles
from actors.supervision.processes.spawner import Spawner
from actors.supervision.processes.zygote_process import FirstProcesses
from actors.supervision.settings_updates import EffectiveSettings, SettingsUpdates, SupervisionConfig
from actors.supervision.systemd import notify, notify_reloading, watchdog_period
from actors.supervision.upgrade import ProgramUpgrade, own_command
from config import VERSION
from config.files.paths import DataDir, RunDir
from config.settings.loading import Origins
from config.settings.runtime import Stored
from config.settings.settings import ConfigError, Settings

log = logging.getLogger(__name__)


STATUS_PERIOD = 10.0
END_GRACE = 5.0
"""Seconds beyond `server.drain_timeout` after which processes that still live are killed."""
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
    """The listening sockets that existed before; the API's is claimed already."""
    predecessors: Sequence[Predecessor] = ()
    """The forwarding actors of an older program that this process was."""
    lab: socket.socket | None = None
    """Where the origin of `serve --lab` listens."""


class SupervisorProcess:
    """The supervisor's process. `reload` returns the configuration, read again, or raises `ConfigError`.

    `settings` are those of the configuration, which `origins` reads the sources of; `stored` are the overrides made
    through the API. `on_ready` is called once, when the fixed actors run. `first` are processes that were started
    already, if any.
    """

    def __init__(
        self,
        settings: Settings,
        resources: RuntimeResources,
        reload: Callable[[], Settings],
        on_ready: Callable[[], None],
        classes: ActorClasses | None = None,
        stored: Stored | None = None,
        origins: Callable[[], Origins] = Origins,
        first: FirstProcesses | None = None,
    ) -> None:
        self._life = ProgramLifecycle()
        self._effective = EffectiveSettings.of(settings, stored or {}, origins())
        self._resources = resources
        self._reload = reload
        self._on_ready = on_ready
        self._started_at = time.time()
        self._last_instance = 0
        self._stop_signal, self._stopped_at = "", 0.0
        self._drain_timer: Timer | None = None
        """Of a drain or a handover: the end of its time."""
        self._status = 0
        self._wake = _signal_pipe()
        signals.become_subreaper()
        raise_limit()
        settings = self._effective.now
        run, inherited = resources.run, resources.inherited
        self._api = resources.api_socket
        inherited.store.put(self._api)
        self._inner = inner_listener(run.api_inner) if settings.server.tls.enabled else None
        self._loop = Loop()
        self._upgrade = ProgramUpgrade(self._loop, self._upgrade_blocker, self._hand_over)
        self._context: zmq.Context[Any] = zmq.Context()
        self._router = MailboxRouter(self._loop, self._context, run.mailbox, self._receive)
        self._events = Forwarder(self._loop, self._context, run.events_in, run.events_out)
        self._spawner = Spawner(self._loop, settings.logging.level, settings.logging.format, resources.locks, first)
        bound = bound_address(self._api)
        self._actors = self._new_actors(classes or ActorClasses(), SupervisionConfig.of(settings, bound))
        self._settings = SettingsUpdates(
            self._effective, reload, origins, self._life, bound, self._actors, self._spawner, self._events
        )

    def _new_actors(self, classes: ActorClasses, config: SupervisionConfig) -> ActorSupervisor:
        state = LiveStateFiles(self._resources.run.state, later=self._loop.call_later)
        state.adopt(instances_of(self._resources.predecessors))
        context = SupervisionContext(self._loop, self._router, self._spawner, self._new_boot, state)
        context.settings.put(config.groups)
        inherited, lab = self._resources.inherited, self._resources.lab
        inherited.store.later = self._loop.call_later
        actors = ActorSupervisor(
            context,
            self._events,
            classes,
            config,
            self._api_specs(classes, config),
            [] if lab is None else [lab_spec(classes, lambda: [lab])],
            ListenerRegistry(time.monotonic, inherited.listen, inherited.store),
            self._resources.predecessors,
        )
        actors.on_ready = self._ready
        return actors

    def run(self, desired: Iterable[ProxySpec], objects: Iterable[FleetObject] = ()) -> int:
        """Serve these proxies, and what they name, until a signal ends it; the exit status."""
        self._loop.watch(self._wake, select.EPOLLIN, lambda _mask: self._on_signals(os.read(self._wake, 4096)))
        period = watchdog_period()
        if period is not None:
            self._loop.call_every(period, self._ping_watchdog)
        self._settings.warn_of_shadowed_keys()
        self._loop.call_every(STATUS_PERIOD, lambda: notify(f"STATUS={self._actors.summary}"))
        self._actors.start(desired, objects, self._all_bound)
        self._loop.run()
        if self._life.state is ProgramState.HANDED_OVER:
            self._handle_last_signals()
        if self._life.state is ProgramState.DRAINING:  # the handover was taken back
            self._loop.run()
        if self._life.state is ProgramState.HANDED_OVER:
            self._exec_successor()
        self._close()
        return self._status

    # --- parts ---

    def _all_bound(self) -> None:
        self._resources.inherited.close_unclaimed()
        end_start()

    def _api_specs(self, classes: ActorClasses, config: SupervisionConfig) -> list[ActorSpec]:
        """The API, at its own address or behind the TLS terminator that has it. Which of the two holds until the
        end."""
        inner = self._inner
        params = {"supervisor_pid": os.getpid(), "behind_tls": inner is not None}
        if inner is None:
            return [api_spec(classes, config, params, lambda: [self._api])]
        return [
            api_spec(classes, config, params, lambda: [inner]),
            tls_spec(classes, lambda: [self._api]),
        ]

    def _new_boot(self, name: str, settings: dict[str, Any], params: dict[str, Any]) -> Boot:
        self._last_instance = max(self._last_instance + 1, time.time_ns() // 1_000)
        run, data = str(self._resources.run.path), str(self._resources.data.path)
        return Boot(name, self._last_instance, run, data, settings, params)

    def _receive(self, sender: str, message: Any, reply: Reply) -> None:
        match message:
            case ValidateSettings():
                self._settings.validate(message, reply)
            case ApplyOverrides():
                self._settings.put(message, reply)
            case DescribeSettings():
                self._settings.describe(reply)
            case Upgrade():
                self._upgrade.upgrade(reply)
            case Terminated():
                self._terminated(sender, message, reply)
            case DescribeProgram():
                reply(Program(VERSION, self._started_at, self._life.state is ProgramState.RUNNING))
            case _:
                self._actors.receive(sender, message, reply)

    def _terminated(self, sender: str, message: Terminated, reply: Reply) -> None:
        """An actor got a SIGTERM. The same one may be on its way to this process."""

        def decide() -> None:
            if self._life.closes_listeners:
                reply(Done())
            else:
                self._actors.terminated(sender, message)
                reply(Failed(f"only {sender} was to end"))

        if self._life.closes_listeners:
            decide()
        else:
            self._loop.call_later(GROUP_WAIT, decide)

    def _ready(self) -> None:
        self._life.transition(ProgramEvent.READY)
        notify("READY=1", f"STATUS={self._actors.summary}")
        self._on_ready()

    def _ping_watchdog(self) -> None:
        """Report to systemd unless a process hangs that the supervisor has not been able to replace."""
        stuck = self._actors.beyond_help
        if stuck:
            log.critical("watchdog ping withheld: %s", stuck)
        else:
            notify("WATCHDOG=1")

    # --- signals ---

    def _on_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                self._reap()
            elif number == signal.SIGHUP:
                self._settings.reload()
            elif number == signal.SIGUSR2:
                self._upgrade.upgrade(lambda _outcome: None)
            elif number in (signal.SIGTERM, signal.SIGINT):
                self._stop(signal.Signals(number).name)

    def _reap(self) -> None:
        for pid, status in signals.ended():
            if not self._upgrade.reaped(pid, status):
                self._spawner.reaped(pid, status)

    # --- upgrade ---

    def _upgrade_blocker(self) -> str:
        """Why no upgrade can begin: the product is ending, or the configuration names other directories."""
        if self._life.is_ending:
            return "the product is ending"
        try:
            fresh = self._reload()
        except ConfigError:
            return ""  # the next program may accept it; its preflight reports what is wrong
        base = self._effective.base
        moved = [name for name in ("data_dir", "run_dir") if getattr(fresh, name) != getattr(base, name)]
        return f"{' and '.join(moved)}: changed, which needs a restart" if moved else ""

    def _hand_over(self) -> None:
        log.info("upgrade: proxies keep serving, other actors restart with the new version")
        self._life.transition(ProgramEvent.HAND_OVER)
        notify_reloading()
        self._drain_timer = self._loop.call_later(self._longest_drain, self._finished)
        self._actors.end_fixed(self._finished)

    def _handle_last_signals(self) -> None:
        """Signals that came when all was ready for the next program; from here on they wait for that."""
        numbers = last_signals(self._wake)
        if {signal.SIGTERM, signal.SIGINT} & set(numbers):
            unblock_signals()
            self._on_signals(numbers)

    def _exec_successor(self) -> None:
        """Pass on what must not end, and become the next program. Returns only if that is impossible."""
        self._actors.kill_fixed()
        listeners, predecessors = self._actors.hand_over()
        lab = [] if self._resources.lab is None else [self._resources.lab.fileno()]
        handover = Handover([self._api.fileno(), *lab, *listeners], list(self._resources.locks), predecessors)
        self._spawner.close()
        self._router.close()
        self._events.close()
        notify("WATCHDOG=1", "STATUS=upgrading")
        try:
            exec_successor(own_command(), os.environ, handover)
        except OSError as error:
            log.critical("cannot execute the next program, ending the product: %s", error)
            self._status = 1

    # --- the end ---

    @property
    def _longest_drain(self) -> float:
        return self._effective.now.server.drain_timeout + END_GRACE

    def _stop(self, why: str) -> None:
        self._upgrade.cancel()
        now, before = time.monotonic(), self._life.state
        if before is ProgramState.DRAINING and why == self._stop_signal and now - self._stopped_at < SAME_SIGNAL:
            return
        if self._life.transition(ProgramEvent.STOP) is ProgramState.STOPPED:
            log.warning("%s again: ending at once", why)
            self._status = 1
            self._loop.stop()
            return
        self._stop_signal, self._stopped_at = why, now
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        log.info("%s: draining for up to %g s", why, self._effective.now.server.drain_timeout)
        longest = self._longest_drain
        notify("STOPPING=1", "STATUS=draining", f"EXTEND_TIMEOUT_USEC={int((longest + END_GRACE) * 1e6)}")
        self._api.close()
        if self._inner is not None:
            self._inner.close()
        self._drain_timer = self._loop.call_later(longest, self._out_of_time)
        self._actors.end(self._finished)

    def _out_of_time(self) -> None:
        log.error("some actors have not ended in time and are killed")
        self._finished()

    def _finished(self) -> None:
        self._life.transition(ProgramEvent.FINISHED)
        self._loop.stop()

    def _close(self) -> None:
        self._actors.kill_all()
        self._actors.close()
        self._spawner.close()
        self._router.close()
        self._events.close()
        self._context.term()
        self._loop.close()


def _signal_pipe() -> int:
    """The read end of a pipe that gets the number of every signal that the supervisor handles."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (*SIGNALS, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)
    unblock_signals()
    return reading
