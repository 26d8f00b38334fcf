"""Children that have ended: what the supervisor and the zygote ask the kernel after a SIGCHLD."""

from __future__ import annotations

import os
from collections.abc import Iterator


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
