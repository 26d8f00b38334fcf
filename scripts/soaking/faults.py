"""The faults of a run, their times, and what may follow from them: for clients, and in the log.

A fault has a kind (`kill api`, `disk full`, …), perhaps a target, and the time from its begin until everything ran
again. What happens to clients within it and `GRACE` seconds after may follow from it, if `EXPLAINS` says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from config.text.formatting import parse_moment

GRACE, AFTERWARDS = 3.0, 45.0
"""Seconds after a fault: for clients; for lines of the log, the longest back-off and a check that comes each ten."""

SUCCEEDED, CUT, REFUSED, LATE, FAILED, WRONG = "succeeded", "cut", "refused", "late", "failed", "wrong"
"""A connection that was made and broke; one that was refused; no response in time; a response of 5xx; other bytes."""

EXPLAINS: dict[str, set[str]] = {
    "kill supervisor": {CUT, REFUSED, LATE, FAILED},
    "kill forwarding": {CUT},
    "hang forwarding": {CUT, LATE},
    "kill worker": {CUT},
    "hang worker": {CUT, LATE},
    "descriptors of forwarding": {CUT, LATE, FAILED},
}
"""Effects on traffic. All other faults explain nothing: they must not affect the data plane."""

UPSTREAM, SPARE, CHAINED, ASLEEP, WORKERS = "upstream", "spare", "chain", "asleep", "workers"
"""Names of proxies: two that are upstreams, one with the first of them, one that sleeps and has both in a pool, and one
with workers, accounts and a policy."""
BEHIND = {CHAINED: {UPSTREAM}, ASLEEP: {UPSTREAM, SPARE}}
"""By name the upstreams of proxies: requests fail when one of them dies."""

KILLED, DISK, DESCRIPTORS = r"(kill|hang) \S+", r"disk full", r"descriptors of \S+"
ANY = rf"({KILLED}|{DISK}|{DESCRIPTORS})"
LINES = (
    (r" died: process \d+ was killed by SIGKILL", KILLED),
    (r"\d of \d workers run: process \d+ was killed by SIGKILL", KILLED),
    (r"recorded revisions of the configuration that were not made are removed", ANY),
    (r"is .* as set through the API; the configuration says", r"reload|kill supervisor"),
    (r" missed its liveness deadline \(silent for \d+ s\); killing it", r"hang \S+"),
    (r"the zygote ended; its children live on", r"kill (zygote|supervisor)"),
    (r"the zygote doesn't take requests", rf"(kill zygote|{DESCRIPTORS})"),
    (r" ends: the supervisor is gone|the bus is closed", r"kill supervisor"),
    (r"reload failed, keeping the current configuration: .*drain_timeout", r"reload of a bad file"),
    (r"No space left on device|(database or|the) disk is full|disk I/O error|wait for the disk", DISK),
    (r"the disk (was full|cannot be written to)", DISK),
    (r"no descriptor is left for (new clients|connections to origins|pipes)", r"descriptors of forwarding"),
    (r"Too many open files|unable to open database file|out of descriptors", DESCRIPTORS),
    (r"can't be started|died: .* at its start|could not be started", rf"({DISK}|{DESCRIPTORS})"),
    (r"the (supervisor|collector|webhook sender)|didn't answer|is not there|Unreachable|TimedOut", ANY),
    (r"their requests did not come in time", KILLED),
    (r"gets (a|the) change later|no webhook can be delivered to|is kept: ", ANY),
)
"""Lines of the log from `warning` on, and the faults that they follow from. Nothing explains a traceback."""


@dataclass(slots=True)
class Fault:
    """`target` is the name of the proxy that it was done to, if it was one. Times are monotonic."""

    kind: str
    target: str = ""
    begin: float = field(default_factory=time.monotonic)
    end: float | None = None

    def covers(self, begin: float, end: float) -> bool:
        """True if it overlaps the time from `begin` to `end`."""
        return begin <= (self.end or end) + GRACE and end >= self.begin

    def explains(self, result: str, target: str) -> bool:
        """True if `result` of a client of the proxy `target` may follow from it."""
        possible = EXPLAINS.get(self.kind, set())
        if self.target in BEHIND.get(target, ()):
            return bool(possible) and result != REFUSED
        return self.target in ("", target) and result in possible


class Journal:
    """All faults, in order; any thread may add one."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    @contextmanager
    def fault(self, kind: str, target: str = "") -> Iterator[Fault]:
        """One that lasts for the block."""
        made = Fault(kind, target)
        self.faults.append(made)
        try:
            yield made
        finally:
            made.end = time.monotonic()

    def explains(self, result: str, target: str, begin: float, end: float) -> bool:
        """True if a result of a client follows from a fault."""
        return any(each.covers(begin, end) and each.explains(result, target) for each in self.faults)

    def around(self, begin: float, end: float) -> list[str]:
        """The kinds of all faults of that time."""
        return [fault.kind for fault in self.faults if fault.covers(begin, end)]


def unexplained(
    lines: Sequence[dict[str, Any]],
    faults: Sequence[Fault],
    wall_offset: float,
    table: Sequence[tuple[str, str]] = LINES,
    clock_off: Sequence[float] = (),
) -> list[str]:
    """The serious lines that no fault explains, and all tracebacks; `wall_offset`: wall less monotonic clock.

    The clock may have been off by one of `clock_off`. What a table has for `.*` needs no fault.
    """
    found = []
    for line in lines:
        text = line["message"]
        if line["level"] == "text":
            if re.search(r"Traceback|Error", text):
                found.append(text)
        elif line["level"] in ("warning", "error", "critical"):
            written = parse_moment(line["time"]) - wall_offset
            moments = [written - off for off in (0.0, *clock_off)]
            near = [""] + [
                each.kind
                for each in faults
                for at in moments
                if each.begin - 1.0 <= at <= (each.end or at) + AFTERWARDS
            ]
            kinds = [kind for pattern, kind in table if re.search(pattern, text)]
            if not any(re.fullmatch(kind, each) for kind in kinds for each in near):
                found.append(f"{line['time']} {line['level']} {line['logger']}: {text}")
        if "exception" in line:
            found.append(f"{line['time']} {text}: {line['exception'].splitlines()[-1]}")
    return found
