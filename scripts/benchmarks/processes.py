"""Child processes of a benchmark: started on a free port, waited for, measured from `/proc`, ended by their pid."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS = 30.0


class BenchError(Exception):
    """A program of the benchmark is missing, didn't start, or answered wrongly; the text says which and how."""


def free_port() -> int:
    """A TCP port of loopback that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Return as soon as `condition()` holds. Raises `BenchError` naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


def accepts(port: int) -> bool:
    """Whether somebody listens on this port of loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Child:
    """A program that runs until `end`; what it prints goes to `<folder>/<name>.out`."""

    def __init__(
        self, name: str, command: list[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.output = folder / f"{name}.out"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder
            )

    def wait_for_port(self, port: int) -> None:
        """Return when the program listens. Raises `BenchError` with its last words when it ends instead."""
        wait_until(lambda: self._alive() and accepts(port), f"{self.name} listens on port {port}")

    def _alive(self) -> bool:
        if self.process.poll() is not None:
            raise BenchError(f"{self.name} ended with {self.process.returncode}: {self.output.read_text()[-2000:]}")
        return True

    def end(self) -> None:
        """SIGTERM, and SIGKILL ten seconds later."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def tree(pid: int) -> list[int]:
    """`pid` and all that descends from it."""
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes, and of their children that have ended already."""
    return sum(map(_cpu_of_one, pids))


def _cpu_of_one(pid: int) -> float:
    # the name in brackets may hold spaces; utime, stime, cutime and cstime are fields 14 to 17 of proc(5)
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
    except OSError:
        return 0.0  # ended meanwhile: its time is in its parent's
    return sum(map(int, fields[11:15])) / TICKS


def uss(pids: Iterable[int]) -> int:
    """Bytes that these processes share with nobody."""
    return sum(psutil.Process(pid).memory_full_info().uss for pid in pids)
