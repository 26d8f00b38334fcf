"""Pins the threads of the API to one core.

They share the interpreter's lock, so no two of them run at once anyway; on several cores they wake each other across
cores at every system call that releases the lock. Measured on 2 cores, a GET of one proxy by 8 clients: 30 changes of
thread and 600 to 1,000 us of CPU for each request, and 230 us on one core, with more than twice the rate.

The kernel moves other work away from a busy core, so the API loses nothing but the choice.
"""

from __future__ import annotations

import logging
import os

log = logging.getLogger(__name__)

allowed = frozenset(os.sched_getaffinity(0))
"""The cores of this process before it was pinned, for its child processes."""


def pin_to_one_core() -> None:
    """To be called before threads are started: they inherit the setting."""
    cores = sorted(allowed)
    try:
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    except OSError as error:  # a sandbox forbids it; everything works, only slower
        log.warning("cannot pin the API to one CPU: %s", error)
