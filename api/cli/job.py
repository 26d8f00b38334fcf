"""Runs a command as a shell would, in the foreground, while this process waits with something to do at its end.

The command stays in our process group. So the terminal is its own as it was ours: it may read, an interactive shell
gets its job control, Ctrl-C and Ctrl-Z reach it from the terminal as they reach us, and all that is left to do is to
survive the former. Signals that were sent to this process alone are sent on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from config.settings.env import wipe, wipe_option

FORWARDED: Final = frozenset(
    (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
)
"""Signals that the command gets in our place."""
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""Exit statuses of a shell where a command can't be run (POSIX XCU 2.8.2)."""

_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that the interpreter ignores, which a program would inherit."""
_FROM_TERMINAL: Final = 0x80
"""`si_code` SI_KERNEL of sigaction(2)."""
_FOR_GROUP: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
"""What the terminal sends to all of the foreground process group; SIGHUP is for the leader of the session alone."""
_PR_SET_DUMPABLE: Final = 4


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block the signals that would end this thread before it has done what it must; they count afterwards."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def was_asked_to_end() -> bool:
    """Whether a signal waits, inside `signals_blocked`, that asks this process to end."""
    return not signal.sigpending().isdisjoint((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))


def hide_from_job(prefix: str, option: str) -> None:
    """Keep processes of the same user from this one's memory, and from variables and an option that it came with.

    Without it the command would find in `/proc/PPID/environ` what its own environment lacks (proc(5), ptrace(2)). It
    lasts as long as this process: what the command has left in the background is still there when it has ended, while
    the key is still used. There is nothing to hide from root.
    """
    with suppress(OSError):  # without /proc there is nothing to be read
        wipe(prefix)
        wipe_option(option)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def run_job(command: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int] = ()) -> int:
    """Run the command, with our standard streams and this environment alone, and return its exit status.

    It inherits what this process has inherited, as from a shell, and `descriptors` by their numbers. The status is
    128 and the number of the signal where one has ended it, as a shell says it. Signals of `FORWARDED` are blocked
    meanwhile in the calling thread and in those that it starts. Raises `OSError` of execve(2); then nothing has run.
    """
    watched = FORWARDED | {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    by_caller = _children_kept()
    try:
        pid = os.posix_spawnp(
            command[0],
            list(command),
            dict(environment),
            file_actions=[(os.POSIX_SPAWN_DUP2, each, each) for each in descriptors],  # which clears FD_CLOEXEC
            setsigmask=mask - watched,
            setsigdef=_IGNORED_BY_PYTHON,
        )
        return _exit_status(pid, watched)
    finally:
        if by_caller is not None:
            signal.signal(signal.SIGCHLD, by_caller)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _children_kept() -> signal.Handlers | None:
    """Have the kernel keep how a child has ended, which it doesn't for one who came with SIGCHLD ignored (wait(2)).

    What there was to be set again; None: nothing was done.
    """
    if signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN:
        return None
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return signal.SIG_IGN


def _exit_status(pid: int, watched: frozenset[signal.Signals]) -> int:
    """Forward signals until the process has ended."""
    waiting, ended = threading.get_ident(), threading.Event()

    def watch() -> None:
        """The SIGCHLD of the kernel may go to any thread."""
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its id is no other process's until it is reaped
        ended.set()
        signal.pthread_kill(waiting, signal.SIGCHLD)

    watcher = threading.Thread(target=watch, name="job", daemon=True)
    watcher.start()
    while not ended.is_set():
        info = signal.sigwaitinfo(watched)
        had_by_group = info.si_code == _FROM_TERMINAL and info.si_signo in _FOR_GROUP
        if info.si_signo != signal.SIGCHLD and not had_by_group:
            os.kill(pid, info.si_signo)
    watcher.join()
    while signal.sigtimedwait(watched, 0) is not None:
        continue  # it was for the command, which has ended before we saw it, as of Ctrl-C
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if status >= 0 else 128 - status
