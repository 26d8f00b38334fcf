"""The API's threads stay on one core.

They share the interpreter's lock, so no two of them run at once anyway; on several cores they wake each other across
those for every system call in which the lock is given away. Measured on 2 cores, a GET of one proxy by 8 clients: 30
changes of thread and 600 to 1,000 us of CPU for each request, and 230 us on one core, with more than twice the rate.

The kernel moves other work away from the core when it is crowded, so the API loses nothing by this but the choice.
"""

from __future__ import annotations

import logging
import os

log = logging.getLogger(__name__)

allowed = frozenset(os.sched_getaffinity(0))
"""The cores that this process was given, for what it starts beside itself."""


def pin_to_one_core() -> None:
    """Called before there are threads: those of later inherit it."""
    cores = sorted(allowed)
    try:
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    except OSError as error:  # a sandbox forbids it; everything works, only slower
        log.warning("cannot pin the API to one CPU: %s", error)
