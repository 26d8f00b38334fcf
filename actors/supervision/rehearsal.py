"""Would the next program start? It is run beside this one, only to check (`proxyfleet serve --check`).

It has the same command line and environment, loads everything that it would run, reads configuration and store without
a lock, and ends with 0 or says what is wrong. So a bad configuration, a broken installation or a store that it can't
read is known while the older program still serves.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.bus.loop import Loop
from actors.supervision.spawner import describe_status

CHECK = "--check"
PATIENCE = 60.0
SAID_MAX = 4_000
"""Bytes of its last words that are passed on."""


def own_command() -> list[str]:
    """How this process was started, so that the next program is whatever is installed there now.

    A script is started by its path, and not by the interpreter that ran it: the next version may have another one.
    """
    original, script = list(sys.orig_argv), sys.argv[0]
    if script in original and os.access(script, os.X_OK) and Path(script).is_file():
        return [os.path.abspath(script), *original[original.index(script) + 1 :]]
    return [sys.executable, *original[1:]]


class Rehearsal:
    """One run of it. `on_end` is called once, with what is wrong; None when nothing is.

    Its end is told by whoever reaps the children of this process (`reaped`).
    """

    def __init__(self, loop: Loop, command: Sequence[str], on_end: Callable[[str | None], None]) -> None:
        """Start it. Raises `OSError` when there is no such program."""
        self._on_end = on_end
        self._late = False
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it is read when the child has ended
        quiet = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        output = self._said.fileno()
        self.pid = os.posix_spawnp(
            command[0],
            [*command, CHECK],
            os.environ,
            file_actions=[quiet, (os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)],
        )
        self._timer = loop.call_later(PATIENCE, self._take_too_long)

    def reaped(self, pid: int, status: int) -> bool:
        """A child has ended; was it this one?"""
        if pid != self.pid:
            return False
        self._timer.cancel()
        if status == 0:
            self._end(None)
        else:
            how = f"it took longer than {PATIENCE:g} s" if self._late else f"it {describe_status(status)}"
            self._end(self._last_words() or how)
        return True

    def _take_too_long(self) -> None:
        self._late = True
        os.kill(self.pid, signal.SIGKILL)  # it is not reaped yet, so the number is its own

    def _last_words(self) -> str:
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - SAID_MAX))
        return self._said.read().decode(errors="replace").strip()

    def _end(self, problem: str | None) -> None:
        self._said.close()
        self._on_end(problem)
