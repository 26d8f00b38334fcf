"""The first zygote of the product, which `supervisor.py` starts before it loads anything else.

A start takes as long as its longest part, the modules of the API; so the process that loads them is forked first. This
module itself imports little.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from actors.supervision.actor_classes import ActorClasses
from actors.supervision.processes.fd_limit import raise_limit
from actors.supervision.processes.zygote_process import ZygoteProcess


@contextmanager
def first_zygote() -> Iterator[ZygoteProcess]:
    """It loads its modules while this process loads its own; at the end it has ended. Raises `OSError`."""
    os.umask(0o077)
    raise_limit()
    zygote = ZygoteProcess(ahead=ActorClasses().api)
    try:
        yield zygote
    finally:
        zygote.end()
