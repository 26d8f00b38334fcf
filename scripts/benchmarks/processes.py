"""Child processes of a benchmark: started on a free port, waited for, measured by the kernel's books, ended by pid."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS = 30.0

_PROCESS_CPU_CLOCK = 2
"""The low bits of the identifier of a process's CPU clock, see clock_getcpuclockid(3)."""


class BenchError(Exception):
    """A program of the benchmark didn't start or responded wrongly; the text says which and how."""


class Missing(BenchError):
    """A program is not installed; the text names it."""


def free_port() -> int:
    """A TCP port of loopback that is free at this moment."""
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
    """True if this port of loopback has a listener."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def allow_many_descriptors() -> int:
    """Raise the limit of this process and of those that it starts as far as it goes; the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(hard, 65_536)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    except (ValueError, OSError):  # only CAP_SYS_RESOURCE may raise the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


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
        """SIGTERM, and SIGKILL ten seconds later; then SIGKILL to whatever of its tree outlives it."""
        rest = _processes(tree(self.process.pid)[1:])
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for process in psutil.wait_procs(rest, timeout=2)[1]:
            with suppress(psutil.NoSuchProcess):  # it has just ended
                process.kill()


def _processes(pids: Iterable[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        try:
            found.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return found


def tree(pid: int) -> list[int]:
    """`pid` and all that descends from it; none when it has ended."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes, and of their children that have ended already."""
    return sum(map(_cpu_of_one, pids))


def _cpu_of_one(pid: int) -> float:
    # The process's own clock counts nanoseconds, /proc only ticks of 10 ms. Only /proc includes ended children:
    # cutime and cstime are fields 16 and 17 of proc(5), and the name in brackets before them may hold spaces.
    try:
        own = time.clock_gettime(~pid << 3 | _PROCESS_CPU_CLOCK)
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
    except OSError:
        return 0.0  # ended meanwhile: its time is in its parent's
    return own + sum(map(int, fields[13:15])) / TICKS


def uss(pids: Iterable[int]) -> int:
    """Bytes that these processes share with no other process."""
    return sum(_memory(pid, b"Private_") for pid in pids)


def pss(pids: Iterable[int]) -> int:
    """Bytes that these processes occupy together, what they share counted once."""
    return sum(_memory(pid, b"Pss:") for pid in pids)


def rss(pids: Iterable[int]) -> int:
    """Resident bytes, what is shared counted for each."""
    return sum(_memory(pid, b"Rss:") for pid in pids)


def _memory(pid: int, beginning: bytes) -> int:
    """Bytes in the lines of smaps_rollup, see proc(5), that begin so; 0 of a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(beginning))


def descriptors(pids: Iterable[int]) -> int:
    """Open file descriptors of these processes."""
    return sum(map(_descriptors_of_one, pids))


def _descriptors_of_one(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError):
        return 0
