"""Leaks: memory and descriptors of each kind of process, processes, files; and processes that spin."""

from __future__ import annotations

import re
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from soaking.installation import Installation

MB = 1 << 20
MORE_MEMORY = 0.3
"""Share by which the memory of a process may have grown: allocators and SQLite's caches take that in twenty minutes."""
LEAST_MEMORY = 8 * MB
MORE_DESCRIPTORS = 12
"""Idle connections to clients and origins come and go."""
IDLE_SHARE = 0.15
"""Of a core, for one process when there is no traffic any more."""

SOCKETS = {"mailbox", "events.in", "events.out", "records", "api.door", "api.sock", "lock", "resolver", "tickets"}
FOLDERS = {"usage", "pools", "workers"}
_EXPECTED = re.compile(r"(\.new|\.link|\.damaged-\d+|\.partial|^upgrade)$")


@dataclass(frozen=True, slots=True)
class Sample:
    """Medians of one kind of process."""

    processes: int
    memory: float
    descriptors: float


def sample(product: Installation) -> dict[str, Sample]:
    """By kind."""
    found = {}
    for kind, processes in product.by_kind().items():
        measured = [each for each in map(_measure, processes) if each is not None]
        if measured:
            memory, descriptors = zip(*measured, strict=True)
            found[kind] = Sample(len(measured), statistics.median(memory), statistics.median(descriptors))
    return found


def growths(before: dict[str, Sample], after: dict[str, Sample]) -> list[str]:
    """Growth beyond noise."""
    leaks = []
    for kind, then in before.items():
        now = after.get(kind)
        if now is None:
            leaks.append(f"there is no {kind} any more")
            continue
        if now.memory - then.memory > max(LEAST_MEMORY, then.memory * MORE_MEMORY):
            leaks.append(f"memory of {kind}: {then.memory / MB:.1f} MB became {now.memory / MB:.1f} MB")
        if now.descriptors - then.descriptors > MORE_DESCRIPTORS:
            leaks.append(f"descriptors of {kind}: {then.descriptors:g} became {now.descriptors:g}")
    return leaks


def stray_processes(product: Installation, known: set[int], active: int) -> list[str]:
    """Processes that should not be: zombies, second ones of a kind, and orphans of a dead supervisor.

    `known` are our own children that are no part of the product; this process is a child subreaper.
    """
    by_kind = product.by_kind()
    wanted = dict.fromkeys(by_kind, 1) | {"forwarding": active}
    leaks = [f"{len(found)} processes of {kind}" for kind, found in by_kind.items() if len(found) != wanted[kind]]
    family = {process.pid for processes in by_kind.values() for process in processes}
    left = (each for each in psutil.Process().children(recursive=True) if each.pid not in known | family)
    return leaks + [f"left behind: {process.name()} ({process.status()})" for process in left]


def stray_files(product: Installation) -> list[str]:
    """Files of interrupted writes, and deleted ones that are still open."""
    data, run = product.files()
    leaks = [str(path.relative_to(product.directory)) for path in data if _EXPECTED.search(path.name)]
    gone = [path for path in run if path.relative_to(product.run_dir).parts[0] not in SOCKETS | FOLDERS]
    proxies = {proxy["id"] for proxy in product.data("GET", "/proxies?per_page=100")["proxies"]}
    gone += [path for path in run if path.parent.name == "workers" and path.name not in proxies]
    leaks += [str(path.relative_to(product.directory)) for path in gone]
    for process in [psutil.Process(product.pid), *product.lasting()]:
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            target = _target(link)
            if target.endswith(" (deleted)") and str(product.directory) in target:
                leaks.append(f"{process.name()} holds {target}")
    return leaks


def spinning(product: Installation) -> list[str]:
    """Processes that are busy although nothing happens; what they have to do yet may take a minute."""
    found = _busy(product)
    for _ in range(15):
        found = found and _busy(product)
    return found


def _busy(product: Installation, seconds: float = 4.0) -> list[str]:
    before = _cpu_times(product)
    time.sleep(seconds)
    after = _cpu_times(product)
    shares = {process: (after[process] - then) / seconds for process, then in before.items() if process in after}
    return [f"{process.name()}: {share:.0%} of a core" for process, share in shares.items() if share > IDLE_SHARE]


def _cpu_times(product: Installation) -> dict[psutil.Process, float]:
    """Seconds of each process that lasts."""
    found = {}
    for process in [psutil.Process(product.pid), *product.lasting()]:
        with suppress(psutil.NoSuchProcess):
            found[process] = sum(process.cpu_times()[:2])
    return found


def _measure(process: psutil.Process) -> tuple[float, float] | None:
    try:
        return float(process.memory_full_info().uss), float(process.num_fds())
    except psutil.NoSuchProcess:
        return None


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""  # closed meanwhile
