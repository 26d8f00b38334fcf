"""An upgrade up to the handover: checks that the next program would start, and whether this one may end.

The check runs the next program beside this one (`proxyfleet serve --check`). It has the same command line and
environment, loads everything that it would run, reads configuration and store without a lock, and writes that it would
start (`WOULD_START`) or what is wrong. So a bad configuration, a broken installation or an unreadable store is known
while the older program still serves. A status of 0 alone is not enough: a program of which half was written before the
disk was full ends with that, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.bus.loop import Loop
from actors.bus.mailbox import Reply
from actors.bus.messages.common import Done, Failed
from actors.supervision.processes.spawner import describe_status
from actors.supervision.systemd import notify

log = logging.getLogger(__name__)


CHECK = "--check"
WOULD_START = "It would start."
"""The last line of a successful preflight; every version writes these words."""
TIMEOUT = 240.0
"""Seconds that it may take: a start on a machine that is busy, while the older program serves on."""
OUTPUT_MAX = 4_000
"""Bytes of the end of its output that are passed on."""
PIPE_SIZE = 64 * 1024


def own_command() -> list[str]:
    """How this process was started, so that the next program is whatever is installed there now.

    A script is started by its path, and not by the interpreter that ran it: the next version may have another one.
    """
    original, script = list(sys.orig_argv), sys.argv[0]
    if script in original and os.access(script, os.X_OK) and Path(script).is_file():
        return [os.path.abspath(script), *original[original.index(script) + 1 :]]
    return [sys.executable, *original[1:]]


class Preflight:
    """One run of it. `on_end` is called once, with what is wrong, or None.

    `reaped` has to be called for each child of this process that ends.
    """

    def __init__(self, loop: Loop, command: Sequence[str], on_end: Callable[[str | None], None]) -> None:
        """Start it, in a process group of its own. Raises `OSError` when there is no such program."""
        self._loop = loop
        self._on_end = on_end
        self._killed = ""
        self._output = b""
        self._read_end, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            self.pid = _start([*command, CHECK], write_end)
        except OSError:
            os.close(self._read_end)
            raise
        finally:
            os.close(write_end)
        os.set_blocking(self._read_end, False)
        loop.watch(self._read_end, select.EPOLLIN, lambda _mask: self._read())
        self._timer = loop.call_later(TIMEOUT, lambda: self.kill(f"it took longer than {TIMEOUT:g} s"))

    def reaped(self, pid: int, status: int) -> bool:
        """Handle the end of a child; True when it was this one."""
        if pid != self.pid:
            return False
        self._timer.cancel()
        self._read()
        self._loop.unwatch(self._read_end)
        os.close(self._read_end)
        output = self._output.decode(errors="replace").strip()
        self._on_end(self._problem(status, output))
        return True

    def kill(self, why: str) -> None:
        """End it and its children; `why` is what is wrong."""
        if not self._killed:
            self._killed = why
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and is reaped soon
                os.killpg(self.pid, signal.SIGKILL)  # it is not reaped yet, so the number is its own

    def _problem(self, status: int, output: str) -> str | None:
        if self._killed:
            return f"{self._killed}: {output}" if output else self._killed
        if status != 0:
            return output or f"it {describe_status(status)}"
        if output.endswith(WOULD_START):
            return None
        return f"it did not report that it would: {output or 'nothing at all'}"

    def _read(self) -> None:
        """Keep the end of its output."""
        try:
            output = os.read(self._read_end, PIPE_SIZE)
        except BlockingIOError:
            return
        self._output = (self._output + output)[-OUTPUT_MAX:]
        if not output:
            self._loop.unwatch(self._read_end)


def _start(command: list[str], write_end: int) -> int:
    quiet = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    output = [(os.POSIX_SPAWN_DUP2, write_end, number) for number in (1, 2)]
    return os.posix_spawnp(command[0], command, os.environ, file_actions=[quiet, *output], setpgroup=0)


class ProgramUpgrade:
    """`blocker` returns why there can be no upgrade now, or an empty text.

    `hand_over` is called when the next program would start: this one is to end for it.
    """

    def __init__(self, loop: Loop, blocker: Callable[[], str], hand_over: Callable[[], None]) -> None:
        self._loop = loop
        self._blocker = blocker
        self._hand_over = hand_over
        self._preflight: Preflight | None = None

    def upgrade(self, reply: Reply) -> None:
        """Become the program that is installed now if it would start; otherwise reply `Failed` and continue."""
        problem = "an upgrade is under way" if self._preflight is not None else self._blocker()
        if not problem:
            try:
                self._preflight = Preflight(self._loop, own_command(), lambda problem: self._checked(problem, reply))
            except OSError as error:
                problem = f"{own_command()[0]}: {error.strerror}"
        if problem:
            self._refuse(problem, reply)

    def reaped(self, pid: int, status: int) -> bool:
        """Handle the end of a child; True when it was the preflight's."""
        return self._preflight is not None and self._preflight.reaped(pid, status)

    def cancel(self) -> None:
        """End a running preflight: the product is ending."""
        if self._preflight is not None:
            self._preflight.kill("the product is ending")

    def _checked(self, problem: str | None, reply: Reply) -> None:
        self._preflight = None
        if problem is not None:
            problem = f"the next program would not start: {problem}"
        refused = self._blocker() or problem
        if refused:
            self._refuse(refused, reply)
            return
        reply(Done())
        self._hand_over()

    def _refuse(self, problem: str, reply: Reply) -> None:
        log.error("not upgraded: %s", problem)
        notify("STATUS=not upgraded; the log says why")
        reply(Failed(problem))
