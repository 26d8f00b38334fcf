"""Descriptors that the supervisor leaves unused, so that the bus goes on when there are few.

libzmq ends the whole process when an actor connects and there is no descriptor for the connection: its listener for
`ipc://` takes EMFILE for impossible. So nothing new is begun when little room is left: no listener, and, with even
less, no process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource

FOR_LISTENERS = 64
"""Left over when a new listener is taken on: its process and what clients of the bus need in the next moments."""
FOR_PROCESSES = 16
"""Left over when a process is started: twice what one takes, counting its connections to the bus."""


def require(spare: int) -> None:
    """Raise `OSError` (EMFILE) unless this process may open more than `spare` descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = soft - spare
    if not _is_free(highest) and len(os.listdir("/proc/self/fd")) >= highest:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _is_free(number: int) -> bool:
    """Numbers are given out from the lowest on: one so high that is free tells of room without a count, as a rule."""
    try:
        copy = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, number)
    except (OSError, ValueError, OverflowError):
        return False  # beyond the limit, or no room at all
    os.close(copy)
    return copy == number
