"""What a supervisor leaves to the program that it becomes (`actors.supervision.upgrade.upgrade`).

The process replaces its program by execve(2) and keeps its id, its children and the descriptors that are meant for it:

- the listening sockets, so that nobody is refused for a moment;
- the locks of its directories, so that no other instance slips in between;
- the lifelines of the forwarding actors that live, the *elders*: they serve on until the new program has others in
  their place, and drain then.

Which descriptor is what is written down in a memfd, whose number stands in the environment, as a msgpack map of
`FORMAT`. Only the process that it was written for takes it. The signals that the supervisor listens to are blocked
before the exec and let in again when the new program listens, so that none is lost and none ends a program that is
just starting.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
from collections.abc import MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import msgpack

log = logging.getLogger(__name__)

VARIABLE = "SUPERVISOR_LEGACY"
"""`PID:DESCRIPTOR`"""
FORMAT = 1
_STANDARD_ERROR = 2
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
"""What the supervisor listens to, besides the end of its children."""


@dataclass(frozen=True, slots=True)
class Elder:
    """A process of a forwarding actor that was made by an older program.

    One that is `leaving` drains already.
    """

    name: str
    instance: int
    pid: int
    lifeline: int
    leaving: bool


@dataclass(slots=True)
class Legacy:
    """All that is left. Nothing, when this is the first program of its process."""

    listeners: list[int] = field(default_factory=list)
    locks: list[int] = field(default_factory=list)
    elders: list[Elder] = field(default_factory=list)

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
        """Locks of directories that are not used any more."""
        for descriptor in self.locks:
            if descriptor not in but:
                os.close(descriptor)

    def _descriptors(self) -> list[int]:
        return [*self.listeners, *self.locks, *(elder.lifeline for elder in self.elders)]


def received(environ: MutableMapping[str, str]) -> Legacy:
    """What was left to this very process; taken out of `environ`."""
    owner, _, number = environ.pop(VARIABLE, "").partition(":")
    if owner != str(os.getpid()):
        return Legacy()
    with os.fdopen(int(number), "rb") as file:
        told: dict[str, Any] = msgpack.unpackb(file.read())
    legacy = Legacy(told["listeners"], told["locks"], [Elder(**elder) for elder in told["elders"]])
    for descriptor in legacy._descriptors():
        os.set_inheritable(descriptor, False)
    return legacy


def become(command: Sequence[str], environ: MutableMapping[str, str], legacy: Legacy) -> NoReturn:
    """Be that program from now on. Raises `OSError` when it can't be executed; then nothing has changed."""
    memory = os.memfd_create("legacy", 0)
    told = {"format": FORMAT, **asdict(legacy)}
    os.write(memory, msgpack.packb(told))
    os.lseek(memory, 0, os.SEEK_SET)
    descriptors = legacy._descriptors()
    _pass_only({memory, *descriptors})
    block_signals()
    try:
        os.execvpe(command[0], list(command), {**environ, VARIABLE: f"{os.getpid()}:{memory}"})  # noqa: S606 - its own
    except OSError:
        let_signals_in()
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        os.close(memory)
        raise


def _pass_only(wanted: set[int]) -> None:
    """Of all that is open, the next program gets these and the standard streams.

    Most descriptors are not passed on anyway; but those that came by a Unix socket would be.
    """
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            os.set_inheritable(descriptor, descriptor in wanted or descriptor <= _STANDARD_ERROR)
        except OSError as error:
            if error.errno != errno.EBADF:  # the listing's own, which is closed again
                raise


def block_signals() -> None:
    """From now on signals wait."""
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


def let_signals_in() -> None:
    """This program listens to signals: those that came meanwhile, too."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
