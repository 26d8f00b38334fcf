"""How many workers a proxy may have, and what `auto` is on this machine. Light to import: actors need it."""

from __future__ import annotations

import os

WORKERS_MAX = 64
WORKERS_FORM = f"must be a whole number from 1 to {WORKERS_MAX}, or auto"
SOCKETS_MAX = 16_384
"""Listening sockets of one proxy in all its workers."""

PROCESSES_MAX = 4_000
"""Processes of all proxies that don't sleep: the tasks of the unit (`TasksMax=`) are enough for eight of each."""


def resolved(workers: int) -> int:
    """The number of workers; 0 (`auto`) is one for each core that this process may use."""
    return workers or max(1, min(WORKERS_MAX, len(os.sched_getaffinity(0))))
