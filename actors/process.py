"""What every actor process is: a name on the bus, a liveness deadline, a life that ends with its supervisor's.

An actor subclasses `Actor`, sets itself up in `__init__`, handles messages in `receive` and finishes in `drain`. It
runs in a process that the zygote has forked (`actors.supervision.processes.zygote`); `main` runs there first.

The lifeline is the read end of a pipe whose write end only the supervisor holds. End of file on it means that the
supervisor is gone, however it died: the actor closes its things and ends, so that no process and no port is left
behind. Should its loop be stuck, the kernel's SIGIO for the same pipe sets an alarm that ends it all the same.

An actor loads no models. The supervisor has validated its settings and sends them as plain values (`view`): pydantic
and the models would cost each such process 5 MB and 60 ms of its start.
"""

from __future__ import annotations

import fcntl
import importlib
import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import zmq

from actors.bus.events import Publisher
from actors.bus.loop import LONGEST_WAIT, Loop, ignore_deadline
from actors.bus.mailbox import Mailbox, Reply, address_of, refuse
from actors.bus.messages.common import BY_SIGNAL, SUPERVISOR, ApplySettings, Done, Hello, Stop, Terminated
from actors.garbage import shorten_collections
from actors.log_lines import JsonFormatter, TextFormatter
from actors.signals import IGNORED, ignore, unblock
from config.files.paths import DataDir, RunDir

log = logging.getLogger(__name__)

ORPHAN_GRACE = 1.0
"""Seconds that an actor may take to end after its supervisor died."""
TERMINATED_WAIT = 2.0
"""Seconds that the supervisor has to reply whether a SIGTERM was for the whole product."""


@dataclass(frozen=True, slots=True)
class Boot:
    """What an actor gets at its start: `settings` by group, and `params`, plain values for this kind of actor alone.

    `instance` is greater at every start and never used again, not even by a later run of the product.
    """

    name: str
    instance: int
    run_dir: str
    data_dir: str
    settings: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)


class Actor:
    """Base of all actors. Subclasses override `receive` and `drain`, and call `ready` when they can work."""

    longest_wait = LONGEST_WAIT
    """Seconds after which its loop turns in any case."""
    holds_much = False
    """Whether it may have so much in memory that full collections of garbage take long (`actors.garbage`)."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        self.boot = boot
        self.settings = dict(boot.settings)
        self.run_dir = RunDir(Path(boot.run_dir))
        self.data_dir = DataDir(Path(boot.data_dir))
        self.loop = Loop()
        self.loop.longest_wait = self.longest_wait
        self.context: zmq.Context[Any] = zmq.Context()
        own = address_of(boot.name, boot.instance)
        self.mailbox = Mailbox(self.loop, self.context, self.run_dir.mailbox, own, self._received)
        self.events = Publisher(self.context, self.run_dir.events_in)
        self.sockets = sockets
        self._stopping = False
        self._terminated = False

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        """Handle a message that the base doesn't; `reply`, now or later, if it was a request."""
        refuse(sender, message, reply)

    def settings_changed(self, _groups: Collection[str]) -> None:
        """These groups of `settings` have changed."""
        return

    def drain(self, _seconds: float) -> None:
        """Finish what is under way within this time, then call `finish`."""
        self.finish()

    def drain_sooner(self, _seconds: float) -> None:
        """It drains, and has no more time than that."""
        return

    def ready(self) -> None:
        """Report to the supervisor that it can work. From now on it must keep its liveness deadlines."""
        self.mailbox.tell(SUPERVISOR, Hello(self.boot.instance, os.getpid()))

    def finish(self) -> None:
        """End the loop after this turn."""
        self.loop.stop()

    def close(self) -> None:
        """Close everything; called once after the loop has ended."""
        self.mailbox.close()
        self.events.close()
        self.context.term()

    def _received(self, sender: str, message: Any, reply: Reply) -> None:
        if isinstance(message, Stop):
            self.stop(message.drain)
            reply(Done())
        elif isinstance(message, ApplySettings):
            self._apply(message.groups)
            reply(Done())
        else:
            self.receive(sender, message, reply)

    def _apply(self, groups: dict[str, Any]) -> None:
        self.settings |= groups
        if "logging" in groups:
            _apply_logging(self.settings)
        self.settings_changed(groups.keys())

    def stop(self, drain: float) -> None:
        """Begin to end, once; another time only sooner."""
        if self._stopping:
            self.drain_sooner(drain)
            return
        self._stopping = True
        self.drain(drain)

    def terminate(self, why: str = BY_SIGNAL) -> None:
        """End after a SIGTERM: when the supervisor stops it if the whole product ends, else by itself.

        So ends one, too, that is to start again for another reason.
        """

        def decided(reply: object) -> None:
            self._terminated = False
            if not isinstance(reply, Done):
                log.info("%s ends: %s", self.boot.name, why)
                self.stop(0.0)

        if not self._stopping and not self._terminated:
            self._terminated = True
            self.mailbox.ask(SUPERVISOR, Terminated(self.boot.instance, why), decided, TERMINATED_WAIT)


MakeActor = Callable[[Boot, list[socket.socket]], Actor]


def main(
    entry: str | MakeActor,
    boot: Boot,
    sockets: list[socket.socket],
    lifeline: int,
    on_wake_deadline: Callable[[float], None] = ignore_deadline,
) -> int:
    """Run the actor of the class `entry` (`package.module:Class`) until it ends; the exit status of its process.

    `on_wake_deadline` is called with the time until which the actor may be silent
    (`actors.supervision.processes.liveness`).
    """
    _apply_logging(boot.settings)
    make: MakeActor = loaded(entry) if isinstance(entry, str) else entry
    actor = make(boot, sockets)
    actor.loop.on_wake_deadline = on_wake_deadline
    _end_with_the_supervisor(actor, lifeline)
    _listen_to_signals(actor)
    if actor.holds_much:
        shorten_collections()
    try:
        actor.loop.run()
    finally:
        actor.close()
    return 0


def loaded(entry: str) -> Any:
    """The class that this names: `package.module:Class`."""
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


_log_set_up: tuple[str, str, str] | None = None
"""As which the process's own log is set up; an actor is forked with what its zygote has."""


def _apply_logging(settings: dict[str, Any]) -> None:
    group = settings["logging"]
    wanted = (group["level"], group["format"], group["output"])
    if wanted != _log_set_up:
        set_up_logging(*wanted)


def set_up_logging(level: str, style: str, output: str = "stderr") -> None:
    """Where the process's own log goes: `stdout`, which is the terminal or the journal, `journald`, else `stderr`."""
    global _log_set_up  # of the process, as the log itself
    _log_set_up = (level, style, output)
    logging._srcfile = None  # no format has the caller, thread or process of a message: they are not found out
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(handlers=[_handler(style, output)], level=level.upper(), force=True)
    logging.getLogger("urllib3").setLevel(logging.WARNING)  # below it logs whole URLs, which may hold credentials


def _handler(style: str, output: str) -> logging.Handler:
    handler: logging.Handler
    if output == "journald":
        from actors.log_lines import JournalHandler  # a rare setting

        handler = JournalHandler()
    else:
        handler = logging.StreamHandler(sys.stdout if output == "stdout" else sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    return handler


def _listen_to_signals(actor: Actor) -> None:
    interrupt = actor.loop.interrupter(actor.terminate)
    ignore(*IGNORED)
    signal.signal(signal.SIGTERM, lambda _number, _frame: interrupt())
    unblock()  # they have waited since the fork


def _end_with_the_supervisor(actor: Actor, lifeline: int) -> None:
    def gone(_mask: int) -> None:
        log.warning("%s ends: the supervisor is gone", actor.boot.name)
        actor.loop.unwatch(lifeline)
        actor.finish()

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGIO, lambda _number, _frame: signal.setitimer(signal.ITIMER_REAL, ORPHAN_GRACE))
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    actor.loop.watch(lifeline, select.EPOLLIN, gone)


def view(group: Mapping[str, Any]) -> Any:
    """The keys of `group` as attributes. Callers annotate what they keep with the group's model."""
    return SimpleNamespace(**group)
