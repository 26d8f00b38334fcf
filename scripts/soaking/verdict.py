"""The checks of a run: what failed without a reason, what leaks, and the tables of faults and their effects."""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from soaking.changes import Called
from soaking.faults import REFUSED, SUCCEEDED, WRONG, Journal
from soaking.installation import Installation
from soaking.traffic import Attempt

REFUSALS = {401, 500, 502, 503, 504, 507}
"""Statuses that a fault may lead to. 401: the token's session could not be read or was never stored."""
MB = 1 << 20
MORE_MEMORY, LEAST_MEMORY, MORE_DESCRIPTORS = 0.3, 8 * MB, 12
"""By how much a process may have grown: allocators, SQLite's caches and idle connections take that in twenty
minutes."""
IDLE_SHARE = 0.15
"""Of a core, for one process when there is no traffic any more."""
_IN_RUN = {"mailbox", "events.in", "events.out", "records", "api.sock", "lock", "resolver"} | {
    *("state", "clients", "pools", "workers")
}
_UNFINISHED = re.compile(r"(\.new|\.link|\.damaged-\d+|\.partial)$")


Findings = dict[str, list[str]]
"""By each requirement what violates it."""


# --- traffic and calls ---


def of_traffic(attempts: Sequence[Attempt], journal: Journal) -> Findings:
    """Wrong bytes and refused connections apart from the rest."""
    found: Findings = {
        "no client got other bytes than it asked for": [],
        "no connection was refused while the supervisor lived": [],
        "no request failed but those of the process that was killed": [],
    }
    lists = dict(zip((WRONG, REFUSED, ""), found.values(), strict=True))
    for each in attempts:
        if each.result != SUCCEEDED and not journal.explains(each.result, each.proxy, each.begin, each.end):
            text = f"{each.proxy}: {each.result} {each.detail}, {_when(each, journal)}"
            lists.get(each.result, lists[""]).append(text)
    return found


def of_calls(calls: Sequence[Called], journal: Journal) -> Findings:
    """Calls may fail during a fault, and only with the statuses in `REFUSALS`."""
    wrong: list[str] = []
    alone: list[str] = []
    for each in filter(_failed, calls):
        text = f"{each.what}: {each.status}, {_when(each, journal)}: {each.detail}"
        if isinstance(each.status, int) and each.status not in REFUSALS:
            wrong.append(text)
        elif not journal.around(each.begin, each.end):
            alone.append(text)
    return {
        "no call of the API was refused as wrong": wrong,
        "no call of the API failed but while a fault was there": alone,
    }


def _failed(call: Called) -> bool:
    return call.status not in (200, 201)


def _when(each: Attempt | Called, journal: Journal) -> str:
    around = ", ".join(journal.around(each.begin, each.end)) or "nothing"
    return f"after {each.end - each.begin:.2f} s, during {around}"


# --- tables, in Markdown ---


def table_of_findings(findings: Findings) -> str:
    """Whether each requirement held."""
    rows = [f"| {what} | {f'**no**: {len(found)}' if found else 'yes'} |" for what, found in findings.items()]
    return "\n".join(["| what has to hold | held |", "|---|---|", *rows])


def table_of_faults(journal: Journal, attempts: Sequence[Attempt], calls: Sequence[Called]) -> str:
    """Each kind of fault, how often, how long until all ran again, and its effects on clients. What happened during
    several faults counts for each of them."""
    head = (
        "| what was done | times | longest until all ran again | requests cut, late or failed | API calls that failed |"
    )
    rows = [head, "|---|---:|---:|---:|---:|"]
    bad = [each for each in attempts if each.result != SUCCEEDED]
    failed = [journal.around(call.begin, call.end) for call in calls if _failed(call)]
    for kind in sorted({fault.kind for fault in journal.faults}):
        faults = [fault for fault in journal.faults if fault.kind == kind]
        longest = max((fault.end or fault.begin) - fault.begin for fault in faults)
        affected = sum(any(f.covers(e.begin, e.end) and f.explains(e.result, e.proxy) for f in faults) for e in bad)
        rows.append(
            f"| {kind} | {len(faults)} | {longest:.1f} s | {affected} | {sum(kind in each for each in failed)} |"
        )
    return "\n".join(rows)


def summary(attempts: Sequence[Attempt], calls: Sequence[Called], seconds: float) -> list[str]:
    """Totals of the run."""
    results = Counter(each.result for each in attempts)
    others = ", ".join(f"{count} {name}" for name, count in results.items() if name != SUCCEEDED) or "none else"
    return [
        f"{results[SUCCEEDED]} attempts of clients succeeded ({results[SUCCEEDED] / seconds:.0f} a second); {others}",
        f"{len(calls) - sum(map(_failed, calls))} of {len(calls)} calls of the API succeeded",
    ]


# --- leaks ---

Sample = tuple[float, float]
"""Medians of the memory and the descriptors of one kind of process."""


def sample(product: Installation) -> dict[str, Sample]:
    """By kind: what each process has alone. Of the zygote and the supervisor it is all that they have: their children
    share it, of whom a new one has few.
    """
    found = {}
    for kind, processes in product.by_kind().items():
        measured = []
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                which = "rss" if kind in {"zygote", "supervisor"} else "uss"
                measured.append((float(getattr(each.memory_full_info(), which)), float(each.num_fds())))
        if measured:
            memory, descriptors = zip(*measured, strict=True)
            found[kind] = statistics.median(memory), statistics.median(descriptors)
    return found


def growths(before: dict[str, Sample], after: dict[str, Sample]) -> list[str]:
    """Growth beyond noise."""
    leaks = []
    for kind, (memory, descriptors) in before.items():
        if kind not in after:
            leaks.append(f"there is no {kind} any more")
            continue
        memory_now, descriptors_now = after[kind]
        if memory_now - memory > max(LEAST_MEMORY, memory * MORE_MEMORY):
            leaks.append(f"memory of {kind}: {memory / MB:.1f} MB became {memory_now / MB:.1f} MB")
        if descriptors_now - descriptors > MORE_DESCRIPTORS:
            leaks.append(f"descriptors of {kind}: {descriptors:g} became {descriptors_now:g}")
    return leaks


def stray_processes(product: Installation, known: set[int], active: int) -> list[str]:
    """Processes that should not be: zombies, second ones of a kind, and orphans of a dead supervisor.

    `known` are our own children that are no part of the product; this process is a child subreaper.
    """
    by_kind = product.by_kind()
    wanted = dict.fromkeys(by_kind, 1) | {"forwarding": active}
    leaks = [f"{len(found)} processes of {kind}" for kind, found in by_kind.items() if len(found) != wanted[kind]]
    family = known | {process.pid for processes in by_kind.values() for process in processes}
    left = (each for each in psutil.Process().children(recursive=True) if each.pid not in family)
    return leaks + [f"left behind: {process.name()} ({process.status()})" for process in left]


def stray_files(product: Installation) -> list[str]:
    """Files of interrupted writes, and deleted ones that are still open."""
    proxies = {proxy["id"] for proxy in product.proxies()}
    found = [path for path in product.data_dir.rglob("*") if _UNFINISHED.search(path.name)]
    for path in product.run_dir.rglob("*"):
        top = path.relative_to(product.run_dir).parts[0]
        if top not in _IN_RUN or (path.parent.name == "workers" and path.name not in proxies):
            found.append(path)
    leaks = [str(path.relative_to(product.directory)) for path in found]
    for process in [psutil.Process(product.pid), *product.lasting()]:
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                target = str(link.readlink())
                if target.endswith(" (deleted)") and str(product.directory) in target:
                    leaks.append(f"{process.name()} holds {target}")
    return leaks


def spinning(product: Installation) -> list[str]:
    """Processes that are busy although nothing happens; what they have to do yet may take a minute."""
    found = [""]
    for _ in range(16):
        before = _cpu_times(product)
        time.sleep(4)
        after = _cpu_times(product)
        shares = {process: (after[process] - then) / 4 for process, then in before.items() if process in after}
        found = [f"{process.name()}: {share:.0%} of a core" for process, share in shares.items() if share > IDLE_SHARE]
        if not found:
            break
    return found


def _cpu_times(product: Installation) -> dict[psutil.Process, float]:
    """Seconds of each process that lasts."""
    found = {}
    for process in [psutil.Process(product.pid), *product.lasting()]:
        with suppress(psutil.NoSuchProcess):
            found[process] = sum(process.cpu_times()[:2])
    return found
