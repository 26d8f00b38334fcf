"""What a supervisor passes to the program that it becomes (`actors.supervision.upgrade.preflight`).

The process replaces its program by execve(2) and keeps its id, its children and the descriptors that are meant for it:

- the listening sockets, so that no connection is refused for a moment;
- the locks of its directories, so that no other instance slips in between;
- the lifelines of the forwarding actors that live, the *predecessors*: they keep serving until the new program has
  others in their place, and drain then.

A memfd, whose number stands in the environment, lists the descriptors by purpose, as a msgpack map of `FORMAT`. Only
the process that it was written for reads it. The signals that the supervisor handles are blocked before the exec and
unblocked when the new program handles them, so that none is lost and none ends a program that is just starting.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import msgpack

from actors.bus.messages.common import actor_proxy

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
"""Fields that are handed over apart: an older program knows a predecessor without them."""


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
