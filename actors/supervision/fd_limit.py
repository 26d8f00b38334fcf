"""Descriptors: as many as the system allows, and those that the supervisor leaves unused. This module imports little:
the limit is raised before the zygote is started.

Some are left unused so that the bus works on when there are few. libzmq ends the whole process when an actor connects
and there is no descriptor for the connection: its listener for `ipc://` treats EMFILE as impossible. So nothing new is
begun when few are left: no listener, and, with even fewer, no process.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
from collections.abc import Iterable

log = logging.getLogger(__name__)


def raise_limit() -> None:
    """As many descriptors as the system allows: every tunnel takes two, and actors inherit the limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


FOR_LISTENERS = 64
"""Spare when a listener is bound: for its process, and for clients of the bus in the next moments."""
FOR_PROCESSES = 16
"""Spare when a process is started: twice what one takes, with its connections to the bus."""


PER_PROCESS = 16
"""Descriptors of the supervisor for one process, with room."""
OTHERS = 256
"""Of everything else."""


def needed(proxies: Iterable[tuple[int, int]]) -> int:
    """How many descriptors the supervisor has at most, for proxies with so many ports and processes each.

    Besides its own it has a copy of each listening socket for each process that it starts.
    """
    return OTHERS + sum(ports * (1 + processes) + PER_PROCESS * processes for ports, processes in proxies)


def warn_if_short(proxies: Iterable[tuple[int, int]]) -> None:
    """Log it when that is more than there may be."""
    wanted, limit = needed(proxies), hard_limit()
    if wanted > limit:
        log.warning("the ports of all proxies may take %d descriptors, and the limit is %d", wanted, limit)


def hard_limit() -> int:
    """How many descriptors a process may have."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def require(spare: int) -> None:
    """Raise `OSError` (EMFILE) unless this process may open more than `spare` descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = soft - spare
    if _in_use_at_most() >= allowed and len(os.listdir("/proc/self/fd")) >= allowed:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _in_use_at_most() -> int:
    """How many descriptors this process has; before Linux 6.2 the places in its table of them (proc(5), `FDSize`).

    It takes no longer with many descriptors, as listing them does: thousands of sockets are bound at a start.
    """
    count = os.stat("/proc/self/fd").st_size
    if count:
        return count
    with open("/proc/self/status", "rb") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(b"FDSize:"))
