"""Descriptors that the supervisor leaves unused, so that the bus works on when there are few.

libzmq ends the whole process when an actor connects and there is no descriptor for the connection: its listener for
`ipc://` treats EMFILE as impossible. So nothing new is begun when few are left: no listener, and, with even fewer, no
process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource

FOR_LISTENERS = 64
"""Spare when a listener is bound: for its process, and for clients of the bus in the next moments."""
FOR_PROCESSES = 16
"""Spare when a process is started: twice what one takes, with its connections to the bus."""


def require(spare: int) -> None:
    """Raise `OSError` (EMFILE) unless this process may open more than `spare` descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = soft - spare
    if not _is_free(highest) and len(os.listdir("/proc/self/fd")) >= highest:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _is_free(number: int) -> bool:
    """The kernel gives out the lowest free number: so a high one that is free mostly saves counting."""
    try:
        copy = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, number)
    except (OSError, ValueError, OverflowError):
        return False  # beyond the limit, or no room at all
    os.close(copy)
    return copy == number


def raise_limit() -> None:
    """As many descriptors as the system allows: every tunnel takes two, and actors inherit the limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
