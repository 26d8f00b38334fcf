"""Actors as the product starts them: forked from a zygote, of which each worker of the tests has one for each kind.

A new interpreter that imports all that an actor needs costs half a second; a fork costs some milliseconds.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgpack

from actors.process import Boot
from actors.supervision.processes.liveness import LivenessPage
from actors.supervision.processes.zygote import PACKET_MAX, packets_of

ENTRY = "actors.forwarding.actor:ForwardingActor"
PATIENCE = 120.0
_PROGRAM = """
import sys
from actors.supervision.processes import zygote
zygote.PRELOAD = tuple(sys.argv[3:]) or zygote.PRELOAD
zygote.run(int(sys.argv[1]), int(sys.argv[2]))
"""


class Forked:
    """One process, with what tests use of a `subprocess.Popen`."""

    def __init__(self, zygote: Zygote, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._zygote = zygote
        self._pidfd = pidfd
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that killed it; None while it lives."""
        return self._ended_within(0.0)

    def wait(self, seconds: float = PATIENCE) -> int:
        """The same, once it has ended. Raises `subprocess.TimeoutExpired`."""
        status = self._ended_within(seconds)
        if status is None:
            raise subprocess.TimeoutExpired(f"actor {self.pid}", seconds)
        return status

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send it this signal, while it lives."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def _ended_within(self, seconds: float) -> int | None:
        if self.returncode is None and self._is_over(seconds):
            self.returncode = self._zygote.status_of(self.pid)
            os.close(self._pidfd)
        return self.returncode

    def _is_over(self, seconds: float) -> bool:
        poll = select.poll()  # `select.select` knows no number above 1023, and a worker holds many descriptors
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


class Zygote:
    """The product's, with this process in the supervisor's place. For one thread alone.

    It has imported what actors of the kind `entry` need, which in the product only forwarding actors find there.
    """

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._page = LivenessPage()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ended: dict[int, int] = {}
        descriptors = (theirs.fileno(), self._page.descriptor)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *map(str, descriptors), *_preloaded(entry)],
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._control.settimeout(PATIENCE)
        atexit.register(self.end)

    def fork(self, boot: Boot, listeners: Sequence[socket.socket], lifeline: int) -> Forked:
        """A new actor with its own copies of the descriptors."""
        request = {"token": 1, "entry": self._entry, "boot": asdict(boot), "slot": 0}
        for packet in packets_of(request, [lifeline, *(each.fileno() for each in listeners)]):
            socket.send_fds(self._control, [packet.data], packet.descriptors)
        while True:
            report, descriptors = self._receive()
            if "started" in report:
                return Forked(self, report["started"], descriptors[0])

    def status_of(self, pid: int) -> int:
        """How a process has ended."""
        deadline = time.monotonic() + PATIENCE
        while pid not in self._ended:
            assert time.monotonic() < deadline, f"the zygote doesn't report how {pid} has ended"
            self._receive()
        return self._ended.pop(pid)

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        packet, descriptors, _flags, _address = socket.recv_fds(self._control, PACKET_MAX, 1)
        assert packet, "the zygote has ended"
        report: dict[str, Any] = msgpack.unpackb(packet)
        if "ended" in report:
            self._ended[report["ended"]] = report["status"]
        return report, descriptors

    def end(self) -> None:
        """Its actors must have ended."""
        self._control.close()
        self._process.wait()


def _preloaded(entry: str) -> list[str]:
    return [] if entry == ENTRY else [entry.partition(":")[0]]


_zygotes: dict[tuple[str, str | None], Zygote] = {}
"""By what their actors are, and the authorities that these trust."""


def fork_actor(boot: Boot, listeners: Sequence[socket.socket], lifeline: int, entry: str = ENTRY) -> Forked:
    """An actor that listens at `listeners`, and lives for as long as the other end of `lifeline` is open."""
    kind = entry, os.environ.get("SSL_CERT_FILE")
    if kind not in _zygotes:
        _zygotes[kind] = Zygote(entry)
    return _zygotes[kind].fork(boot, listeners, lifeline)
