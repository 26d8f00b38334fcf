"""The root key of TLS session tickets (`actors.net.tls_tickets`): made once a boot, replaced every twelve hours.

Whether keys can be set at all is found out by a process of its own, once a boot and build: the file with the root key
is there only where that has ended well. It is in the run directory: an upgrade or a restart of the product leaves it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from actors.bus.loop import Loop
from actors.net.tls_tickets import ROOT_SIZE, Root, build, read_root, write_root
from actors.supervision.processes.spawner import describe_status
from config.files.accounts_table import boot_id
from config.settings.env import ENV_PREFIX

log = logging.getLogger(__name__)

PERIOD = 12 * 3600.0
"""Seconds for which a root key is used."""
CHECK_PERIOD = 600.0

PROGRAM = """
import json, resource, signal, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
signal.alarm(60)
sys.path[:] = json.loads(sys.argv[1])
from actors.net.tls_tickets import works
sys.exit(0 if works() else 1)
"""


class TicketRotation:
    """Has the file with the root key from `begin` on. `reaped` has to be called for each child that ends."""

    def __init__(self, loop: Loop, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = loop
        self._file = file
        self._clock = clock
        self._checking = 0
        """The process that checks; 0 without one."""

    def begin(self) -> None:
        """Use the root key that is there, if it is of this boot and build; else check whether there can be one."""
        root = read_root(self._file)
        if root is not None and (root.build, root.boot) == (build(), boot_id()):
            self._keep()
            return
        self._file.unlink(missing_ok=True)
        try:
            self._checking = _start_check()
        except OSError as error:
            self._decline(str(error))

    def reaped(self, pid: int, status: int) -> bool:
        """Handle the end of a child; True when it was the check."""
        if pid != self._checking:
            return False
        self._checking = 0
        if status == 0:
            self._keep()
        else:
            self._decline(f"the check {describe_status(status)}")
        return True

    def _decline(self, why: str) -> None:
        log.warning("TLS sessions are resumed by the process that began them alone: %s", why)

    def _keep(self) -> None:
        self.replace_when_due()
        self._loop.call_every(CHECK_PERIOD, self.replace_when_due)

    def replace_when_due(self) -> None:
        """Make another root key, if the present one was used for long enough."""
        root, now = read_root(self._file), self._clock()
        if root is not None and 0 <= now - root.made_at < PERIOD:
            return
        try:
            write_root(self._file, Root(build(), boot_id(), now, os.urandom(ROOT_SIZE)))
        except OSError as error:  # the one before stays in use; the next check tries again
            log.error("the root key of TLS session tickets can't be replaced: %s", error)


def _start_check() -> int:
    command = [sys.executable, "-P", "-c", PROGRAM, json.dumps(sys.path)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    return os.posix_spawn(command[0], command, environment, file_actions=quiet, setsigmask=())
