"""Metrics of the machine and of our processes, by psutil."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import psutil

from config.files.paths import DataDir, RunDir

CPUS = os.cpu_count() or 1
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""Bytes of the machine."""
PSS, RSS = "pss", "rss"
"""How memory of several processes is summed up: with what they share once, or with what is resident in each."""
MEMORY_FRESH = 5.0
"""Seconds for which the memory of our processes isn't read again; reading costs the kernel a walk over their pages."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of all processes of the product together.

    `used` is what they have: pages that several share are counted once (PSS), as `measure` says. Without a kernel that
    measures it, it is the sum of what is resident in each.
    """

    used: int
    measure: str
    rss: int
    uss: int
    vms: int


class MachineMetrics:
    """What psutil measures. `cpu_percent` is of the second before the last `sample`."""

    def __init__(self, run: RunDir, data: DataDir) -> None:
        self._run = run
        self._data = data
        self._memory: tuple[float, Memory] | None = None
        self.cpu_percent = 0.0
        self.sample()

    def sample(self) -> None:
        """Once a second."""
        self.cpu_percent = psutil.cpu_percent(interval=None)

    def memory_percent(self) -> float:
        """Of the machine's memory, in use."""
        return float(psutil.virtual_memory().percent)

    def load_average(self) -> tuple[float, float, float]:
        """Of the last 1, 5 and 15 minutes."""
        return os.getloadavg()

    def disk(self) -> tuple[float, int]:
        """Percent used and bytes free where the data lie."""
        usage = psutil.disk_usage(str(self._data.path))
        return (usage.percent, usage.free)

    def memory(self) -> Memory:
        """Of our processes, at most five seconds old."""
        now = time.monotonic()
        if self._memory is None or now - self._memory[0] > MEMORY_FRESH:
            self._memory = (now, self._read_memory())
        return self._memory[1]

    def _read_memory(self) -> Memory:
        rss = pss = uss = vms = 0
        measured = True
        for process in self._family():
            try:
                info = _memory_info(process)
            except psutil.Error:
                continue  # it has just ended
            measured = measured and hasattr(info, "pss")
            rss, vms = rss + info.rss, vms + info.vms
            pss, uss = pss + getattr(info, "pss", 0), uss + getattr(info, "uss", 0)
        return Memory(pss, PSS, rss, uss, vms) if measured else Memory(rss, RSS, rss, uss, vms)

    def _family(self) -> list[psutil.Process]:
        """The supervisor, whose process id its lock file holds, and all below it."""
        try:
            supervisor = psutil.Process(int(self._run.lock.read_text()))
            return [supervisor, *supervisor.children(recursive=True)]
        except (OSError, ValueError, psutil.Error):
            return [psutil.Process()]


def _memory_info(process: psutil.Process) -> Any:
    """With PSS and USS, unless the kernel does not measure or show them."""
    try:
        return process.memory_full_info()
    except psutil.AccessDenied:
        return process.memory_info()
