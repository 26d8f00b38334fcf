"""Signals that reach a whole process group: the supervisor decides what they mean.

Ctrl-C, `timeout`, service managers and container engines often send a signal to all processes of the product, where
the supervisor alone would be enough. Were each of them to end by itself, those that others report to would be gone
before the others. So a process that isn't the supervisor ignores all but SIGTERM, and at SIGTERM it asks the
supervisor first (`actors.process.Actor.terminate`).

After a SIGCHLD the supervisor and the zygote ask the kernel which children have ended.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
"""For the supervisor alone: end, read the configuration again, upgrade."""
OF_THE_GROUP = (signal.SIGTERM, *IGNORED)


def ignore(*numbers: signal.Signals) -> None:
    """Ignore them from now on."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def block() -> None:
    """Let signals to the group wait: a process that is just starting must not be ended by one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_GROUP)


def unblock() -> None:
    """Receive those that have waited, and those to come."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_THE_GROUP)


@contextmanager
def blocked() -> Iterator[None]:
    """Within the block they wait, and a process that is started in it begins so."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_GROUP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_PR_SET_CHILD_SUBREAPER = 36


def ended() -> Iterator[tuple[int, int]]:
    """Pid and exit code (or minus the signal) of each child that has ended, which is reaped by it; never waits."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def become_subreaper() -> None:
    """Adopt the children of a dead zygote, so that nothing stays a zombie (prctl(2))."""
    import ctypes  # not for the zygote, which imports this module, too

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        log.warning("cannot become a child subreaper: %s", os.strerror(ctypes.get_errno()))
