"""Would the next program start? It is run beside this one, only to check (`proxyfleet serve --check`).

It has the same command line and environment, loads everything that it would run, reads configuration and store without
a lock, and says that it would start (`WOULD_START`) or what is wrong. So a bad configuration, a broken installation or
a store that it can't read is known while the older program still serves. A status of 0 alone is not enough: a program
of which half was written before the disk was full ends with that, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.bus.loop import Loop
from actors.supervision.processes.spawner import describe_status

CHECK = "--check"
WOULD_START = "It would start."
"""What the next program says in its last line when all is well; every version says it in these words."""
PATIENCE = 60.0
SAID_MAX = 4_000
"""Bytes of its last words that are passed on."""
PIPE_SIZE = 64 * 1024


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
        """Start it, in a process group of its own. Raises `OSError` when there is no such program."""
        self._loop = loop
        self._on_end = on_end
        self._killed = ""
        self._said = b""
        self._hears, says = os.pipe2(os.O_CLOEXEC)
        try:
            self.pid = _start([*command, CHECK], says)
        except OSError:
            os.close(self._hears)
            raise
        finally:
            os.close(says)
        os.set_blocking(self._hears, False)
        loop.watch(self._hears, select.EPOLLIN, lambda _mask: self._hear())
        self._timer = loop.call_later(PATIENCE, lambda: self.kill(f"it took longer than {PATIENCE:g} s"))

    def reaped(self, pid: int, status: int) -> bool:
        """A child has ended; was it this one?"""
        if pid != self.pid:
            return False
        self._timer.cancel()
        self._hear()
        self._loop.unwatch(self._hears)
        os.close(self._hears)
        said = self._said.decode(errors="replace").strip()
        self._on_end(self._problem(status, said))
        return True

    def kill(self, why: str) -> None:
        """End it and whatever it has started; `why` is what is wrong."""
        if not self._killed:
            self._killed = why
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and is told so soon
                os.killpg(self.pid, signal.SIGKILL)  # it is not reaped yet, so the number is its own

    def _problem(self, status: int, said: str) -> str | None:
        if self._killed:
            return f"{self._killed}: {said}" if said else self._killed
        if status != 0:
            return said or f"it {describe_status(status)}"
        return None if said.endswith(WOULD_START) else f"it did not say that it would: {said or 'nothing at all'}"

    def _hear(self) -> None:
        """Keep the last of what it says, however much that is."""
        try:
            said = os.read(self._hears, PIPE_SIZE)
        except BlockingIOError:
            return
        self._said = (self._said + said)[-SAID_MAX:]
        if not said:
            self._loop.unwatch(self._hears)


def _start(command: list[str], says: int) -> int:
    quiet = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    output = [(os.POSIX_SPAWN_DUP2, says, number) for number in (1, 2)]
    return os.posix_spawnp(command[0], command, os.environ, file_actions=[quiet, *output], setpgroup=0)
