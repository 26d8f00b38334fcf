"""What other nodes of a fleet count of accounts with limits, as one more line of each key, which the collector writes.

Processes read it as that of another process: forwarding knows nothing of nodes. A line counts for `HOLDS` seconds after
it was written last, so that one whose collector is gone for good limits nothing for long; the next collector goes on
with those that are there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from actors.state.counts import (
    CONNECTIONS,
    DIVIDED,
    LIMITS,
    PERIOD,
    Moved,
    Numbers,
    moved_in,
    period_at,
    requests_in,
    write_moved,
    write_requests,
)
from actors.state.live_state import ACCOUNTS, ACCOUNTS_TABLE, PROCESSES
from actors.state.processes import LivingProcesses, open_processes
from actors.state.table import COLLECTOR, KEY, NO_LINE, OWNER, UNTIL, Table, make_table

HOLDS: Final = 30.0
_RENEWED: Final = 3.0
"""Seconds after which a line is written again that would stay the same: its requests stay for some seconds more."""
_FRESH: Final = round(3.0 / PERIOD)
"""Periods for which a demand of bandwidth holds: until the next exchange, and one that is late."""


class Figures(NamedTuple):
    """What is counted of a key: open connections, requests of the last minute; of a bandwidth bytes of the last second,
    and flows that wait."""

    connections: int = 0
    requests: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    flows_in: int = 0
    flows_out: int = 0

    def plus(self, other: Figures) -> Figures:
        """The sums."""
        return Figures(*(one + more for one, more in zip(self, other, strict=True)))


class KeyInUse(NamedTuple):
    """A key that is in use on this machine: what all its processes count, and the limits, 0 for none."""

    figures: Figures
    max_connections: int
    max_requests: int
    is_bandwidth: bool


NOTHING: Final = Figures()


class OtherNodes:
    """The table of accounts, for the collector."""

    def __init__(self, table: Table, processes: LivingProcesses, clock: Callable[[], float]) -> None:
        self._table = table
        self._numbers = Numbers(table.words)
        self._processes = processes
        self._clock = clock
        self._lines: dict[int, int] = {}
        """Those of the collector, by key."""
        self._written: dict[int, tuple[Figures, float]] = {}
        """What they say, and since when."""

    def close(self) -> None:
        """Close the file. What is written counts on for a while."""
        self._table.close()

    def in_use(self) -> dict[int, KeyInUse]:
        """The keys that processes of this machine have in use, or whose requests count on."""
        now, processes = self._table.now(), self._processes
        found: dict[int, KeyInUse] = {}
        for line, key, owner, until in self._all():
            if owner not in (0, COLLECTOR) and (until > now or processes.lives(owner)):
                of_line = self._read(line, processes.lives(owner))
                before = found.get(key)
                found[key] = of_line if before is None else _sum(before, of_line)
        return found

    def written(self) -> dict[int, Figures]:
        """What the collector before has written, which goes on to count."""
        now = self._table.now()
        self._lines = {key: line for line, key, owner, until in self._all() if owner == COLLECTOR and until > now}
        return {key: self._read(line, True).figures for key, line in self._lines.items()}

    @property
    def keys(self) -> frozenset[int]:
        """Those that have a line."""
        return frozenset(self._lines)

    def write(self, key: int, figures: Figures, is_bandwidth: bool) -> None:
        """Let processes know what other nodes count of it."""
        before, at = self._written.get(key, (NOTHING, 0.0))
        now = self._clock()
        if before == figures and now - at < _RENEWED and not is_bandwidth:
            return
        line = self._line(key)
        if line:
            self._write(line, figures, is_bandwidth)
            self._written[key] = figures, now

    def free(self, key: int) -> None:
        """No other node counts anything of it."""
        line = self._lines.pop(key, NO_LINE)
        self._written.pop(key, None)
        if line and self._is_own(line, key):
            self._table.words[line + OWNER] = 0

    def _all(self) -> list[tuple[int, int, int, int]]:
        """Line, key, owner and UNTIL of all lines that were ever in use."""
        words, found = self._table.words, list[tuple[int, int, int, int]]()
        for lines in self._table.used():
            if lines:
                columns = (words[lines.start + each : lines.stop : lines.step].tolist() for each in (KEY, OWNER, UNTIL))
                found += zip(lines, *columns, strict=True)
        return found

    def _read(self, line: int, lives: bool) -> KeyInUse:
        words, now = self._table.words, self._clock()
        first, second = words[line + LIMITS : line + LIMITS + 2].tolist()
        if first == DIVIDED:
            moved = moved_in(words, line, period_at(now)) if lives else None
            figures = NOTHING if moved is None else Figures(0, 0, moved.lately_in, moved.lately_out, *moved[2:4])
            return KeyInUse(figures, 0, 0, True)
        connections = words[line + CONNECTIONS] if lives else 0
        return KeyInUse(Figures(connections, requests_in(self._numbers, line, int(now))), first, second, False)

    def _write(self, line: int, figures: Figures, is_bandwidth: bool) -> None:
        words, now = self._table.words, self._clock()
        words[line + UNTIL] = int(1000 * (now + HOLDS))
        if is_bandwidth:
            words[line + LIMITS] = DIVIDED
            _, _, bytes_in, bytes_out, flows_in, flows_out = figures
            of_period = int(bytes_in * PERIOD), int(bytes_out * PERIOD)
            moved = Moved(*of_period, flows_in, flows_out, bytes_in, bytes_out)
            write_moved(words, line, period_at(now) + _FRESH, moved)
        else:
            words[line + CONNECTIONS] = figures.connections
            write_requests(words, line, int(now), figures.requests)

    def _line(self, key: int) -> int:
        """The collector's line of a key; `NO_LINE` when it can't have one now."""
        line = self._lines.get(key, NO_LINE)
        if line and self._is_own(line, key):
            return line
        with self._table.exclusive(key) as alone:
            line = self._table.take(key, COLLECTOR) if alone else NO_LINE
            if line:  # within the lock: without UNTIL it is free
                self._table.words[line + UNTIL] = int(1000 * (self._clock() + HOLDS))
        self._lines[key] = line
        return line

    def _is_own(self, line: int, key: int) -> bool:
        words = self._table.words
        return words[line + OWNER] == COLLECTOR and words[line + KEY] == key and words[line + UNTIL] > self._table.now()

    def __repr__(self) -> str:
        return f"<OtherNodes in {self._table!r}: {len(self._lines)} keys>"


def _sum(one: KeyInUse, other: KeyInUse) -> KeyInUse:
    return KeyInUse(
        one.figures.plus(other.figures),
        max(one.max_connections, other.max_connections),
        max(one.max_requests, other.max_requests),
        one.is_bandwidth or other.is_bandwidth,
    )


def open_other_nodes(folder: Path, clock: Callable[[], float]) -> OtherNodes | None:
    """The table in `folder` (`RunDir.state`), made if need be; None until it is known who lives. Raises `OSError`."""
    processes = open_processes(folder / PROCESSES)
    if processes is None:
        return None
    return OtherNodes(make_table(folder / ACCOUNTS, ACCOUNTS_TABLE, processes, COLLECTOR, clock), processes, clock)
