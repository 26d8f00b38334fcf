"""What a supervisor passes to the program that it becomes (`actors.supervision.upgrade`), and the forwarding actors
among that.

The process replaces its program by execve(2) and keeps its id, its children and the descriptors that are meant for it:

- the listening sockets, so that no connection is refused for a moment;
- the locks of its directories, so that no other instance slips in between;
- the lifelines of the forwarding actors that live, the *predecessors*: they keep serving until the new program has
  others in their place, and drain then.

A memfd, whose number stands in the environment, lists the descriptors by purpose, as a msgpack map of `FORMAT`. Only
the process that it was written for reads it. The signals that the supervisor handles are blocked before the exec and
unblocked when the new program handles them, so that none is lost and none ends a program that is just starting.

A predecessor accepts and serves until this program has a process in its place; then it drains, and ends by itself or
when its time is up (`server.upgrade_drain`). Later upgrades hand it on, `UPGRADES_MAX` of them. It was forked by a
zygote that is gone, so it is this process's child, and its pidfd becomes readable when it has ended. It reconnects to
the bus by itself and reports there as before.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import select
import signal
import socket
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import msgpack

from actors.bus.loop import Loop
from actors.bus.mailbox import MailboxRouter, address_of
from actors.bus.messages.common import Done, Stop, actor_proxy
from actors.bus.messages.forwarding import ConnectionFilter, ConnectionGroups, GroupConnections
from actors.supervision.callbacks import noop
from actors.supervision.processes.spawner import OwnProcess

log = logging.getLogger(__name__)


VARIABLE = "SUPERVISOR_LEGACY"
"""`PID:DESCRIPTOR`. Older programs write it, so it keeps its name; so do the keys of the map."""
FORMAT = 1
_STANDARD_ERROR = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
"""Those that the supervisor handles, besides SIGCHLD."""


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A process of a forwarding actor that an older program made; `leaving` when it drains already.

    Then it may do so `until` (of the monotonic clock; 0: not known), and has done so through `upgrades`.
    """

    name: str
    instance: int
    pid: int
    lifeline: int
    leaving: bool
    until: float = 0.0
    upgrades: int = 0


_SINCE_FORMAT_1 = ("until", "upgrades")
"""Fields that are handed over separately: an older program knows a predecessor without them."""


@dataclass(slots=True)
class Handover:
    """All that is passed on. Empty when this is the first program of its process."""

    listeners: list[int] = field(default_factory=list)
    locks: list[int] = field(default_factory=list)
    predecessors: list[Predecessor] = field(default_factory=list)

    def sockets(self) -> list[socket.socket]:
        """The listening sockets."""
        return [socket.socket(fileno=descriptor) for descriptor in self.listeners]

    def lock_of(self, file: Path) -> int | None:
        """The descriptor that holds the lock `file`, if one of them does."""
        try:
            wanted = file.stat()
        except FileNotFoundError:
            return None
        return next((each for each in self.locks if os.path.samestat(os.fstat(each), wanted)), None)

    def release_locks(self, but: Sequence[int]) -> None:
        """Close the locks of directories that are not used any more, all `but` these."""
        for descriptor in self.locks:
            if descriptor not in but:
                os.close(descriptor)

    def content(self) -> dict[str, Any]:
        """As the next program reads it."""
        predecessors = [asdict(each) for each in self.predecessors]
        drains = [{name: each.pop(name) for name in _SINCE_FORMAT_1} for each in predecessors]
        content = {"format": FORMAT, "listeners": self.listeners, "locks": self.locks, "elders": predecessors}
        return {**content, "drains": drains}

    def descriptors(self) -> list[int]:
        """All descriptors that the next program needs."""
        return [*self.listeners, *self.locks, *(each.lifeline for each in self.predecessors)]


def instances_of(predecessors: Iterable[Predecessor]) -> dict[str, list[int]]:
    """By proxy, the instances of its predecessors."""
    found: dict[str, list[int]] = {}
    for each in predecessors:
        found.setdefault(actor_proxy(each.name), []).append(each.instance)
    return found


def receive_handover(environ: MutableMapping[str, str]) -> Handover:
    """What was handed over to this very process; removed from `environ`."""
    owner, _, number = environ.pop(VARIABLE, "").partition(":")
    if owner != str(os.getpid()):
        return Handover()
    with os.fdopen(int(number), "rb") as file:
        content: dict[str, Any] = msgpack.unpackb(file.read())
    handover = Handover(content["listeners"], content["locks"], predecessors_of(content))
    for descriptor in handover.descriptors():
        os.set_inheritable(descriptor, False)
    return handover


def predecessors_of(content: dict[str, Any]) -> list[Predecessor]:
    """Those in a map that this program or an older one has written."""
    elders = content["elders"]
    drains = content.get("drains", [{}] * len(elders))
    return [Predecessor(**each, **drain) for each, drain in zip(elders, drains, strict=True)]


def exec_successor(command: Sequence[str], environ: MutableMapping[str, str], handover: Handover) -> NoReturn:
    """Become that program. Raises `OSError` when it can't be executed; then nothing has changed."""
    memory = os.memfd_create("handover", 0)
    os.write(memory, msgpack.packb(handover.content()))
    os.lseek(memory, 0, os.SEEK_SET)
    descriptors = handover.descriptors()
    _pass_only({memory, *descriptors})
    block_signals()
    try:
        os.execvpe(command[0], list(command), {**environ, VARIABLE: f"{os.getpid()}:{memory}"})  # noqa: S606 - its own
    except OSError:
        unblock_signals()
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        os.close(memory)
        raise


def _pass_only(wanted: set[int]) -> None:
    """Of all open descriptors the next program gets these and the standard streams.

    Most are not inheritable anyway; those that came by a Unix socket are.
    """
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            os.set_inheritable(descriptor, descriptor in wanted or descriptor <= _STANDARD_ERROR)
        except OSError as error:
            if error.errno != errno.EBADF:  # the listing's own, which is closed again
                raise


def block_signals() -> None:
    """From now on signals stay pending."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)


def last_signals(wake: int) -> bytes:
    """From now on signals wait for the next program; the numbers of those that have come before.

    They are in the non-blocking pipe `wake` (signal.set_wakeup_fd), which the next program does not get.
    """
    block_signals()
    try:
        return os.read(wake, 4096)
    except BlockingIOError:
        return b""


def unblock_signals() -> None:
    """Receive signals, those that are pending first."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


STOP_REPLY_MAX = 1.0
UPGRADES_MAX = 3
"""Through so many upgrades a process drains; then it has `server.drain_timeout` left, so that not ever more programs
are in memory."""
COUNT_FIRST = 1.0
"""Seconds until the first count: by then those that drained before have reconnected to the bus."""
COUNT_PERIOD = 10.0
"""Seconds between two counts of the connections that are open in those that drain."""
REPLY_MAX = 5.0
LOG_PERIOD = 600.0
"""Seconds between two lines about them."""
RETRY_AFTER = 0.05
"""Seconds until `Stop` is sent again: a predecessor may not have reconnected to the bus yet."""


class _Tracked(OwnProcess):
    """One predecessor, with whether it was `asked` to drain, and has `acknowledged` that."""

    def __init__(self, predecessor: Predecessor, pidfd: int) -> None:
        super().__init__(predecessor.lifeline, predecessor.pid, pidfd)
        self.predecessor = predecessor
        self.asked = self.acknowledged = predecessor.leaving
        self.until = math.inf
        self.connections: int | None = None


class Predecessors:
    """See the module. `on_end` is called whenever one has ended."""

    def __init__(self, loop: Loop, router: MailboxRouter, predecessors: Iterable[Predecessor], drain: float) -> None:
        """`drain` is what those may take whose time is not known, or was long enough."""
        self._loop = loop
        self._router = router
        self._tracked: list[_Tracked] = []
        self.on_end: Callable[[], None] = noop
        self.on_process_end: Callable[[str, int], None] = lambda _proxy_id, _instance: None
        """Called with the proxy and the instance of one that has ended."""
        self._cut = 0
        self._logged_at = -math.inf
        for predecessor in predecessors:
            self._track(predecessor, drain)
        if self._tracked:
            loop.call_later(COUNT_FIRST, self._count)

    def __len__(self) -> int:
        return len(self._tracked)

    def names(self) -> set[str]:
        """The actors that have predecessors which still accept."""
        return {each.predecessor.name for each in self._tracked if not each.asked}

    def has(self, name: str) -> bool:
        """Whether one of this name lives, whatever it does."""
        return any(each.predecessor.name == name for each in self._tracked)

    def instances(self) -> dict[str, tuple[int, ...]]:
        """By proxy, the instances of those that drain."""
        found: dict[str, tuple[int, ...]] = {}
        for each in self._draining():
            proxy_id = actor_proxy(each.predecessor.name)
            found[proxy_id] = (*found.get(proxy_id, ()), each.predecessor.instance)
        return found

    @property
    def connections(self) -> int:
        """How many are open in those that drain, as of the last count."""
        return sum(each.connections or 0 for each in self._draining())

    @property
    def until(self) -> float:
        """When the last of those that drain has to end, of the loop's clock; 0 without any."""
        return max((each.until for each in self._draining()), default=0.0)

    def was_cut(self, connections: int) -> None:
        """So many were open in one of them at the end of its time."""
        self._cut += connections

    def drain_all(self, seconds: float) -> None:
        """Have all drain for no longer than that."""
        for name in {each.predecessor.name for each in self._tracked}:
            self.drain(name, seconds)

    def drain(self, name: str, seconds: float) -> None:
        """Have the predecessors of this name stop accepting and drain: a successor runs, or none is desired. Those that
        drain already have no more time than that."""
        for each in self._tracked:
            if each.predecessor.name == name and (not each.asked or self._loop.now + seconds < each.until):
                each.asked = True
                self._limit(each, seconds)
                self._ask(each, seconds)

    def hand_over(self) -> list[Predecessor]:
        """Those that live, for the next program; this one has none any more."""
        tracked, self._tracked = self._tracked, []
        handed_over = [
            replace(
                each.predecessor,
                lifeline=lifeline,
                leaving=each.acknowledged,
                until=each.until if each.acknowledged else 0.0,
                upgrades=each.predecessor.upgrades + each.acknowledged,
            )
            for each in tracked
            if (lifeline := each.detach_lifeline()) >= 0
        ]
        for each in tracked:
            each.unwatch(self._loop)
            each.close()
        return handed_over

    def kill_all(self) -> None:
        """SIGKILL to all that live."""
        for each in self._tracked:
            each.kill()

    def _track(self, predecessor: Predecessor, drain: float) -> None:
        try:
            pidfd = os.pidfd_open(predecessor.pid)
        except ProcessLookupError:
            os.close(predecessor.lifeline)
            name, instance = actor_proxy(predecessor.name), predecessor.instance
            self._loop.call_soon(lambda: self.on_process_end(name, instance))  # which is set by then
            return
        tracked = _Tracked(predecessor, pidfd)
        self._tracked.append(tracked)
        self._loop.watch(pidfd, select.EPOLLIN, lambda _mask: self._ended(tracked))
        if predecessor.leaving and predecessor.upgrades <= UPGRADES_MAX and predecessor.until:
            self._limit(tracked, max(0.0, predecessor.until - self._loop.now))
        elif predecessor.leaving:
            self._limit(tracked, drain)
            self._ask(tracked, drain)

    def _draining(self) -> list[_Tracked]:
        return [each for each in self._tracked if each.asked]

    def _count(self) -> None:
        """Ask each that drains how many connections are open; the sum is in the log now and then."""
        if not self._tracked:
            return
        self._loop.call_later(COUNT_PERIOD, self._count)
        waiting = self._draining()
        left = len(waiting)

        def counted() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._log()

        for each in waiting:
            self._count_one(each, counted)

    def _count_one(self, tracked: _Tracked, on_reply: Callable[[], None] = noop) -> None:
        def counted(reply: object) -> None:
            if isinstance(reply, ConnectionGroups):
                tracked.connections = sum(count for count, _, _ in reply.groups.values())
            on_reply()

        to = address_of(tracked.predecessor.name, tracked.predecessor.instance)
        self._router.ask(to, GroupConnections(ConnectionFilter(), None, 1), counted, REPLY_MAX)

    def _log(self) -> None:
        if self._loop.now - self._logged_at >= LOG_PERIOD and self._draining():
            self._logged_at = self._loop.now
            text = "older processes that drain for up to %.0f s more: %d, connections that are open in them: %d"
            log.info(text, self.until - self._loop.now, len(self._draining()), self.connections)

    def _ask(self, tracked: _Tracked, drain: float) -> None:
        def replied(reply: object) -> None:
            if isinstance(reply, Done):
                tracked.acknowledged = True
                self._count_one(tracked)
            else:
                self._loop.call_later(RETRY_AFTER, again)

        def again() -> None:
            if tracked in self._tracked:
                self._ask(tracked, drain)

        to = address_of(tracked.predecessor.name, tracked.predecessor.instance)
        self._router.ask(to, Stop(drain), replied, STOP_REPLY_MAX)

    def _limit(self, tracked: _Tracked, drain: float) -> None:
        tracked.until = self._loop.now + drain
        tracked.end_after(self._loop, drain)

    def _ended(self, tracked: _Tracked) -> None:
        log.info("predecessor %s exited (pid %s)", tracked.predecessor.name, tracked.predecessor.pid)
        tracked.unwatch(self._loop)
        tracked.close()
        self._tracked.remove(tracked)
        if not self._tracked:
            log.info("the last older process has ended; connections that were cut: %d", self._cut)
        self.on_process_end(actor_proxy(tracked.predecessor.name), tracked.predecessor.instance)
        self.on_end()
