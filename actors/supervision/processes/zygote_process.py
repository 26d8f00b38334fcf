"""The zygote as a process of the supervisor. `supervisor.py` starts the first one before it loads anything else, and
then the process that becomes the API.

It loads its modules while the supervisor loads its own; what it needs of the configuration comes by `configure`. This
module itself imports little, for the same reason.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from actors.signals import blocked
from actors.supervision.fd_limit import raise_limit
from actors.supervision.processes.liveness import LivenessPage
from config.settings.env import ENV_PREFIX, wipe

if TYPE_CHECKING:
    from actors.supervision.processes.api_process import ApiProcess

_PROGRAM = """
import sys
_, control, page, *sys.path[:] = sys.argv
from actors.supervision.processes.zygote import run
run(int(control), int(page))
"""

_OWN = (ENV_PREFIX, "LISTEN_", "SUPERVISOR_")
"""Variables that are for the supervisor alone: settings, some of which are secrets, and sockets that it was given."""


class ZygoteProcess:
    """`control` is this process's end of their socket, `page` the liveness page that both have mapped.

    The limit of descriptors and the mode of new files are those of this process at the start.
    """

    def __init__(self, page: LivenessPage | None = None) -> None:
        """Start it. Raises `OSError`."""
        self.page = LivenessPage() if page is None else page
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = self._start(theirs)
        except OSError:
            self.control.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def configure(self, log_level: str, log_format: str, inherited: tuple[int, ...]) -> None:
        """The first packet. `inherited` are descriptors that it keeps and that its children inherit. Raises
        `OSError`."""
        import msgpack  # not before the zygote is started

        socket.send_fds(self.control, [msgpack.packb({"logging": [log_level, log_format]})], list(inherited))

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self) -> None:
        """Kill it, and close this process's end of the socket. Its children live on."""
        self.control.close()
        self._process.kill()
        self._process.wait()

    def _start(self, control: socket.socket) -> subprocess.Popen[bytes]:
        descriptors = (control.fileno(), self.page.descriptor)
        with blocked():
            return subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, *map(str, descriptors), *sys.path],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                env=_environment(),
            )


def _environment() -> dict[str, str]:
    """This process's, without what is for the supervisor alone."""
    return {name: value for name, value in os.environ.items() if not for_supervisor(name)}


def for_supervisor(variable: str) -> bool:
    """Whether a variable is for the supervisor alone."""
    return variable.startswith(_OWN)


class FirstProcesses(NamedTuple):
    """Those that a start begins with."""

    zygote: ZygoteProcess
    api: ApiProcess


@contextmanager
def first_processes() -> Iterator[FirstProcesses]:
    """Start them; at the end they have ended. Raises `OSError`."""
    os.umask(0o077)
    raise_limit()
    wipe(ENV_PREFIX)
    with ExitStack() as stack:
        zygote = ZygoteProcess()
        stack.callback(zygote.end)
        from actors.supervision.processes.api_process import ApiProcess  # not before the zygote is started

        api = ApiProcess(zygote.page)
        stack.callback(api.end)
        yield FirstProcesses(zygote, api)
