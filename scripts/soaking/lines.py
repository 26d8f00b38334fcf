"""Every line of the log from `warning` on must be explained: by its text and by a fault near enough in time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from config.text.formatting import parse_moment
from soaking.faults import Fault

AFTERWARDS = 45.0
"""Seconds after a fault: the longest back-off, and a check that comes each ten seconds."""

SERIOUS = frozenset({"warning", "error", "critical"})
KILLED = r"(kill|hang) \S+"
DISK = r"disk full"
DESCRIPTORS = r"descriptors of \S+"
ANY = rf"({KILLED}|{DISK}|{DESCRIPTORS})"


@dataclass(frozen=True, slots=True)
class Explained:
    """Lines that match `line` follow from faults that match `fault`."""

    line: str
    fault: str


EXPLAINED = (
    Explained(r" died: process \d+ was killed by SIGKILL", KILLED),
    Explained(r"\d of \d workers run: process \d+ was killed by SIGKILL", KILLED),
    Explained(r"recorded revisions of the configuration that were not made are removed", ANY),
    Explained(r"is .* as set through the API; the configuration says", r"reload|kill supervisor"),
    Explained(r" missed its liveness deadline \(silent for \d+ s\); killing it", r"hang \S+"),
    Explained(r"the zygote ended; its children live on", r"kill (zygote|supervisor)"),
    Explained(r"the zygote doesn't take requests", rf"(kill zygote|{DESCRIPTORS})"),
    Explained(r" ends: the supervisor is gone|the bus is closed", r"kill supervisor"),
    Explained(r"reload failed, keeping the current configuration: .*drain_timeout", r"reload of a bad file"),
    Explained(r"No space left on device|(database or|the) disk is full|disk I/O error|wait for the disk", DISK),
    Explained(r"the disk (was full|cannot be written to)", DISK),
    Explained(r"no descriptor is left for new clients", r"descriptors of forwarding"),
    Explained(r"Too many open files|unable to open database file|out of descriptors", DESCRIPTORS),
    Explained(r"can't be started|died: .* at its start|could not be started", rf"({DISK}|{DESCRIPTORS})"),
    Explained(r"the (supervisor|collector|webhook sender)|didn't answer|is not there|Unreachable|TimedOut", ANY),
    Explained(r"their requests did not come in time", KILLED),
    Explained(r"gets (a|the) change later|no webhook can be delivered to|is kept: ", ANY),
)


@dataclass(slots=True)
class Clock:
    """Conversion from the wall clock to the monotonic clock."""

    wall: float
    monotonic: float

    def monotonic_of(self, text: str) -> float:
        """Of a moment in the log."""
        return parse_moment(text) - self.wall + self.monotonic


def unexplained(lines: Sequence[dict[str, Any]], faults: Sequence[Fault], clock: Clock) -> list[str]:
    """The serious lines that no fault explains, and all tracebacks."""
    found = []
    for line in lines:
        if line["level"] == "text":
            if re.search(r"Traceback|Error", line["message"]):
                found.append(line["message"])
        elif line["level"] in SERIOUS and not _explained(line, faults, clock):
            found.append(f"{line['time']} {line['level']} {line['logger']}: {line['message']}")
        if "exception" in line:
            found.append(f"{line['time']} {line['message']}: {line['exception'].splitlines()[-1]}")
    return found


def _explained(line: dict[str, Any], faults: Sequence[Fault], clock: Clock) -> bool:
    at = clock.monotonic_of(line["time"])
    near = [fault.kind for fault in faults if fault.begin - 1.0 <= at <= (fault.end or at) + AFTERWARDS]
    return any(
        re.search(each.line, line["message"]) and any(re.fullmatch(each.fault, kind) for kind in near)
        for each in EXPLAINED
    )
