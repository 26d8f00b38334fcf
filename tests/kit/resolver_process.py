"""A resolver as a process of its own, beside a rig: its supervisor's part is the rig's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import msgpack

from actors.bus.messages.common import PROXY_RESOLVER, RESOLVER
from actors.process import Boot
from actors.resolver.profiles import TIMEOUT
from config.files.paths import RunDir
from tests.kit.folders import ROOT
from tests.kit.forked_actor import Forked, fork_actor
from tests.kit.settings import boot_settings
from tests.kit.wait import wait_until

LOOPBACK = ("127.0.0.0/8",)
_PROGRAM = """
import os, sys, msgpack
from actors.process import Boot, main
from actors.resolver import profiles
profiles.TIMEOUT = float(sys.argv[2])
boot = Boot(**msgpack.unpackb(sys.stdin.buffer.read()))
main("actors.resolver.actor:ResolverActor", boot, [], int(sys.argv[1]))
"""


class ResolverProcess:
    """It ends with the `with`; `params` are its own. `allow`: it is the one for name servers of proxies, and these may
    be in such networks. `timeout`: half of the seconds that configured servers have for a question."""

    def __init__(
        self, folder: str | Path, allow: Sequence[str] | None = None, timeout: float = TIMEOUT, **params: Any
    ) -> None:
        run_dir, name = RunDir(Path(folder)), RESOLVER if allow is None else PROXY_RESOLVER
        self.socket = run_dir.resolver if allow is None else run_dir.proxy_resolver
        boot = Boot(name, 1, str(folder), str(folder), boot_settings(proxy={"dns_allow": list(allow or ())}), params)
        reading, self._lifeline = os.pipe()
        self.process = _forked(boot, reading) if timeout == TIMEOUT else _started(boot, reading, timeout)
        os.close(reading)
        wait_until(self._listens, "the resolver listens")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.kill()
        os.close(self._lifeline)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.process.kill()
        self.process.wait(60)

    def _listens(self) -> bool:
        assert self.process.poll() is None, "the resolver has ended"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe, suppress(OSError):
            probe.connect(str(self.socket))
            return True
        return False


def _forked(boot: Boot, lifeline: int) -> Forked:
    return fork_actor(boot, [], lifeline, "actors.resolver.actor:ResolverActor")


def _started(boot: Boot, lifeline: int, timeout: float) -> subprocess.Popen[bytes]:
    """In an interpreter of its own, with another time."""
    command = [sys.executable, "-c", _PROGRAM, str(lifeline), str(timeout)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(lifeline,), cwd=ROOT)
    assert process.stdin is not None
    process.stdin.write(msgpack.packb(asdict(boot)))
    process.stdin.close()
    return process
