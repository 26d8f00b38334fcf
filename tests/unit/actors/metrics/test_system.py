"""The memory of the product's processes together."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from actors.metrics.system import MachineMetrics, Memory
from config.files.paths import DataDir, RunDir

FULL = SimpleNamespace(rss=100, pss=40, uss=30, vms=1000)
BASIC = SimpleNamespace(rss=100, vms=1000)
TWO = Memory(80, "pss", 200, 60, 2000)


class Process:
    """One of two, with what its memory is: figures, or an error."""

    def __init__(self, full: Any) -> None:
        self._full = full

    def memory_full_info(self) -> Any:
        if isinstance(self._full, psutil.Error):
            raise self._full
        return self._full

    def memory_info(self) -> Any:
        return BASIC


@pytest.mark.parametrize(
    ("full", "expected"),
    [
        (FULL, TWO),
        (BASIC, Memory(200, "rss", 200, 30, 2000)),
        (psutil.AccessDenied(), Memory(200, "rss", 200, 30, 2000)),
        (psutil.NoSuchProcess(1), Memory(40, "pss", 100, 30, 1000)),
    ],
    ids=["shared pages once", "no PSS on this kernel", "PSS refused for one", "one has just ended"],
)
def test_the_memory_of_processes_counts_what_they_share_once_or_says_that_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: Any, expected: Memory
) -> None:
    run = RunDir(tmp_path)
    run.lock.write_text(str(os.getpid()))
    supervisor: Any = Process(FULL)
    supervisor.children = lambda *, recursive: [Process(full)]
    monkeypatch.setattr("actors.metrics.system.psutil.Process", lambda _pid: supervisor)
    assert MachineMetrics(run, DataDir(tmp_path)).memory() == expected
