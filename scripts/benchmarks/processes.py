"""Child processes of a benchmark, and what the kernel's books say of processes."""

from __future__ import annotations

import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from tests.kit.wait import wait_until

_PROCESS_CPU_CLOCK = 2
"""The low bits of the identifier of a process's CPU clock, see clock_getcpuclockid(3)."""
START_SECONDS, MB = 30.0, 1 << 20


class BenchError(Exception):
    """A program of the benchmark didn't start or responded wrongly; the text says which and how."""


class Missing(BenchError):
    """A program is not installed; the text names it."""


FAILURES = (BenchError, OSError, AssertionError)
"""What a measure may raise. The product's kit raises `AssertionError`."""


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """True if this port has a listener."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def allow_many_descriptors() -> int:
    """Raise the limit of this process and of those that it starts as far as it goes; the limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for wanted in (max(hard, 65_536), hard):
        with suppress(ValueError, OSError):  # only CAP_SYS_RESOURCE may raise the hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Child:
    """A program that listens at `port` and runs until `end`; what it prints goes to `<folder>/<name>.out`.

    Raises `BenchError` with its last words when it ends instead.
    """

    def __init__(
        self, name: str, command: list[str], folder: Path, port: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self._name, self._output = name, folder / f"{name}.out"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder
            )
        try:
            wait_until(lambda: self._alive() and accepts(port), f"{name} listens at port {port}", START_SECONDS)
        except FAILURES as error:
            self.end()
            raise BenchError(str(error)) from error

    def _alive(self) -> bool:
        if self._process.poll() is not None:
            raise BenchError(f"{self._name} ended: {self._output.read_text(errors='replace')[-1000:]}")
        return True

    def processes(self) -> list[int]:
        """It and all that descends from it; none when it has ended."""
        try:
            children = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [self._process.pid, *(each.pid for each in children)]

    def end(self) -> None:
        """SIGTERM, and SIGKILL to whatever of its tree outlives it."""
        rest = self.processes()[1:]
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pid in rest:
            with suppress(psutil.NoSuchProcess):  # it has just ended
                psutil.Process(pid).kill()


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes, and of their children that have ended already."""
    return sum(_of_each(pids, _cpu))


def _cpu(process: psutil.Process) -> float:
    # the process's own clock counts nanoseconds, /proc only ticks of 10 ms, but that of its ended children as well
    times = process.cpu_times()
    return time.clock_gettime(~process.pid << 3 | _PROCESS_CPU_CLOCK) + times.children_user + times.children_system


def uss(pids: Iterable[int]) -> float:
    """MB that these processes share with no other process."""
    return sum(_of_each(pids, lambda process: process.memory_full_info().uss)) / MB


def pss(pids: Iterable[int]) -> float:
    """MB that these processes occupy together, what they share counted once."""
    return sum(_of_each(pids, lambda process: process.memory_full_info().pss)) / MB


def descriptors(pids: Iterable[int]) -> float:
    """Open file descriptors of these processes."""
    return sum(_of_each(pids, psutil.Process.num_fds))


def _of_each(pids: Iterable[int], figure: Callable[[psutil.Process], float]) -> Iterator[float]:
    """One that has ended counts nothing."""
    for pid in pids:
        with suppress(psutil.NoSuchProcess, OSError):
            yield figure(psutil.Process(pid))
