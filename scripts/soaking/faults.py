"""The faults of a run, their times, and their possible effects.

A fault has a kind (`kill api`, `disk full`, …), perhaps a target, and the time from its begin until everything ran
again. What happens to clients within it and `GRACE` seconds after may follow from it, if `EXPLAINS` says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

GRACE = 3.0

CUT, REFUSED, LATE, FAILED = "cut", "refused", "late", "failed"
"""A connection that was made and broke; one that was refused; no response in time; a response of 5xx."""

EXPLAINS: dict[str, frozenset[str]] = {
    "kill supervisor": frozenset({CUT, REFUSED, LATE, FAILED}),
    "kill forwarding": frozenset({CUT}),
    "hang forwarding": frozenset({CUT, LATE}),
    "kill worker": frozenset({CUT}),
    "hang worker": frozenset({CUT, LATE}),
    "descriptors of forwarding": frozenset({CUT, LATE, FAILED}),
}
"""Effects on traffic. All other faults explain nothing: they must not affect the data plane."""


UPSTREAM, SPARE, CHAINED, ASLEEP, WORKERS = "upstream", "spare", "chain", "asleep", "workers"
"""Names of proxies: two that are upstreams, one with the first of them, one that sleeps and has both in a pool, and one
with workers, accounts and a policy."""

BEHIND = {CHAINED: frozenset({UPSTREAM}), ASLEEP: frozenset({UPSTREAM, SPARE})}
"""By name the upstreams of proxies: requests fail when one of them dies."""


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
        possible = EXPLAINS.get(self.kind, frozenset())
        if self.target in BEHIND.get(target, ()):
            return bool(possible) and result != REFUSED
        return self.target in ("", target) and result in possible


class Journal:
    """All faults, in order. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    @contextmanager
    def fault(self, kind: str, target: str = "") -> Iterator[Fault]:
        """One that lasts for the block."""
        made = Fault(kind, target)
        with self._lock:
            self._faults.append(made)
        try:
            yield made
        finally:
            made.end = time.monotonic()

    @property
    def faults(self) -> Sequence[Fault]:
        """A copy."""
        with self._lock:
            return tuple(self._faults)

    def explain(self, result: str, target: str, begin: float, end: float) -> Fault | None:
        """The fault that a result of a client follows from, or None."""
        return next((f for f in self.faults if f.covers(begin, end) and f.explains(result, target)), None)

    def around(self, begin: float, end: float) -> list[str]:
        """The kinds of all faults of that time."""
        return [fault.kind for fault in self.faults if fault.covers(begin, end)]
