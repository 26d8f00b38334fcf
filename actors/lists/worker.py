"""The process that fetches one list for the API: `python -m actors.lists.worker` with a job in JSON on its input.

It is a process of its own for each fetch: reading a list of a million lines takes seconds of a core and memory that a
running process would hold on to, and a fetch that takes too long is ended whatever it waits for.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from dataclasses import asdict

from setproctitle import setproctitle

from actors.lists.fetching import CPU_MAX, Fetched, FetchJob, fetch
from actors.signals import OF_THE_GROUP

NICENESS = 10
MEMORY_MAX = 2 * 2**30
"""Bytes of address space."""
LONGEST = 1800
"""Seconds after which it ends by itself, should the API have died."""


def main() -> None:
    """Do the job, and write its result in JSON."""
    setproctitle("proxyfleet: fetching a list")
    for number in OF_THE_GROUP:  # the API ends it
        signal.signal(number, signal.SIG_IGN)
    signal.alarm(LONGEST)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_MAX, CPU_MAX + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGXCPU leaves one
    given = json.load(sys.stdin)
    try:
        result = fetch(FetchJob(**{**given, "own": [(host, first, last) for host, first, last in given["own"]]}))
    except MemoryError:
        result = Fetched(f"it needs more than {MEMORY_MAX // 2**20} MiB of memory")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the API may have died meanwhile
    json.dump(asdict(result), sys.stdout)


if __name__ == "__main__":
    main()
