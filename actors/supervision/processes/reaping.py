"""Children that have ended: what the supervisor and the zygote ask the kernel after a SIGCHLD."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

log = logging.getLogger(__name__)

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
