"""Totals of proxies over all their processes, kept on disk so that neither a proxy's restart nor our own steps them.

Each process counts from its own start and reports its cumulative counters again and again, so what is kept is the last
report of every process: a total is the sum over all processes that a proxy ever had. A lost report is made up for by
the next. The reports of processes that are long gone are folded into one row, instance 0.

Beside the plain counters there are those by label: refusals by reason, requests by status, latencies by bucket. On disk
that is a row for each label, and so are plain counters that came after the first: without a column.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from actors.bus.messages.metrics import Counters, ProxyStats
from actors.counters import COUNTERS, LABELLED, NAMES, STATUSES, ZEROS
from actors.metrics.increments import BUCKET_PLACES, COUNTED, FIELDS, Increments, add_counts
from actors.sqlite import open_database, transaction

LATENCY = "latency"
"""The label is the number of a bucket of `actors.histogram`."""

LabelledCounts = dict[tuple[str, str], int]
"""Cumulative counts by kind (`stored` of a row of `actors.counters`, or `LATENCY`) and label."""

_PLAIN = tuple((place, row.stored or row.name) for place, row in enumerate(COUNTERS) if not row.column)
_PLACES = {kind: place for place, kind in _PLAIN}

LABELLED_SCHEMA = """
CREATE TABLE IF NOT EXISTS tallies (
    proxy_id TEXT, instance INTEGER, kind TEXT, reason TEXT, count INTEGER NOT NULL,
    PRIMARY KEY (proxy_id, instance, kind, reason)
) WITHOUT ROWID;
"""


def labelled_counts(counters: Counters) -> LabelledCounts:
    """The counts by label in a message."""
    counts = {(row.stored, label): count for row in LABELLED for label, count in getattr(counters, row.field).items()}
    return counts | {(LATENCY, str(number)): count for number, count in counters.latency}


def plain_counts(values: Sequence[Any], before: Sequence[Any] = ZEROS) -> LabelledCounts:
    """Those of the plain counters without a column that differ from `before`, as they stand on disk."""
    return {(kind, ""): values[place] for place, kind in _PLAIN if values[place] != before[place]}


def counts_of_kind(counts: LabelledCounts, kind: str) -> dict[str, int]:
    """The counts of one kind by label."""
    return {reason: count for (each, reason), count in sorted(counts.items()) if each == kind}


def changed_counts(before: LabelledCounts, after: LabelledCounts) -> LabelledCounts:
    """Those of `after` that differ from `before`."""
    return {key: count for key, count in after.items() if before.get(key) != count}


def latency_counts(counts: LabelledCounts) -> dict[int, int]:
    """The latencies."""
    return {int(label): count for (kind, label), count in counts.items() if kind == LATENCY}


def load_counts(database: sqlite3.Connection) -> Iterator[tuple[str, int, str, str, int]]:
    """The rows on disk: proxy, instance, kind, label and count."""
    yield from database.execute("SELECT proxy_id, instance, kind, reason, count FROM tallies")


def store_counts(database: sqlite3.Connection, proxy_id: str, instance: int, counts: LabelledCounts) -> None:
    """Write the counts of one process, within the caller's transaction. Labels are never deleted."""
    rows = [(proxy_id, instance, kind, reason, count) for (kind, reason), count in counts.items()]
    database.executemany("INSERT OR REPLACE INTO tallies VALUES (?, ?, ?, ?, ?)", rows)


LIVE_FOR = 12.0
"""Seconds without a report after which a process's active connections count no more."""
FOLDED_AFTER = 3600.0
FOLD_PERIOD = 60.0
DELETED = ""
"""Stands for all proxies that were deleted, in place of an id."""

_COLUMN_PLACES = tuple(place for place, row in enumerate(COUNTERS) if row.column)
_FOLDED = 0

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS words (
    proxy_id TEXT, instance INTEGER, last_request REAL NOT NULL,
    {", ".join(f"{NAMES[place]} NOT NULL" for place in _COLUMN_PLACES)},
    PRIMARY KEY (proxy_id, instance)
) WITHOUT ROWID;
{LABELLED_SCHEMA}"""
_ROW = ("proxy_id", "instance", "last_request", *(NAMES[place] for place in _COLUMN_PLACES))
_COLUMNS, _MARKS = ", ".join(_ROW), ", ".join("?" * len(_ROW))
_READ = f"SELECT {_COLUMNS} FROM words"  # noqa: S608 - names of ours
RESIDENT_FOR = 130.0
"""Seconds that the reported memory of a process is valid; an idle one reports every minute."""


@dataclass(slots=True)
class ProcessCounters:
    """The last cumulative counters of one process; `values` are in the order of `actors.counters`."""

    values: list[float] = field(default_factory=lambda: list(ZEROS))
    last_request: float = 0.0
    labelled: LabelledCounts = field(default_factory=dict)

    @classmethod
    def of(cls, counters: Counters) -> ProcessCounters:
        """From the message; a counter that another release does not know is 0."""
        values = [counters.values.get(name, zero) for name, zero in zip(NAMES, ZEROS, strict=True)]
        return cls(values, counters.last_request, labelled_counts(counters))

    def restore(self, columns: Sequence[float]) -> None:
        """From the columns of a row; what has none is added by `restore_count`."""
        for place, value in zip(_COLUMN_PLACES, columns, strict=True):
            self.values[place] = value

    def restore_count(self, kind: str, label: str, count: int) -> None:
        """From a row of the labelled counts."""
        place = _PLACES.get(kind)
        if place is None:
            self.labelled[kind, label] = count
        else:
            self.values[place] = count

    def columns(self) -> tuple[float, ...]:
        """The values of a row, without its key."""
        return (self.last_request, *(self.values[place] for place in _COLUMN_PLACES))

    def changes_since(self, before: ProcessCounters) -> LabelledCounts:
        """What is to be stored besides the row."""
        plain = plain_counts(self.values, before.values)
        return changed_counts(before.labelled, self.labelled) | plain

    def add(self, other: ProcessCounters) -> None:
        """Sum up."""
        self.values = [mine + more for mine, more in zip(self.values, other.values, strict=True)]
        self.last_request = max(self.last_request, other.last_request)
        add_counts(self.labelled, other.labelled)


@dataclass(slots=True)
class _Process:
    counted: ProcessCounters
    active: int = 0
    resident: int = 0
    loop_busy: float = 0.0
    loop_turn_max_ms: float = 0.0
    received: float = 0.0
    """When its last report came."""
    restored: bool = False
    """Its last report is from the disk: the collector did not run for a while."""


@dataclass(frozen=True, slots=True)
class CounterDelta:
    """What a process has counted since its last report. `first`: there was none; `restored`: it was read from disk."""

    increments: Increments
    first: bool
    restored: bool


class TransactionParticipant(Protocol):
    """Saves something together with the totals."""

    def pending(self) -> bool:
        """True if something is to be saved now, even if no total has changed."""
        ...

    def store(self) -> None:
        """Write it: a transaction is under way."""
        ...

    def stored(self) -> None:
        """It was committed."""
        ...


class CounterTotals:
    """All counters of all proxies. `clock` is monotonic.

    `participant` keeps what it derives from the counters in `database`, too, and is saved in the same transactions, so
    that the two never differ.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.database = self._database = open_database(folder / "totals.sqlite", _SCHEMA)
        self._proxies: dict[str, dict[int, _Process]] = {}
        self._changed: dict[str, float] = {}
        """When the totals of each proxy changed last, in this order."""
        self._open: set[str] = set()
        """The proxies with open connections, which cease to count when their process is silent."""
        self._unsaved: dict[tuple[str, int], LabelledCounts] = {}
        self._folded = clock()
        self.participant: TransactionParticipant | None = None
        for proxy_id, instance, last_request, *columns in self._database.execute(_READ):
            process = _Process(ProcessCounters(last_request=last_request), received=clock(), restored=True)
            process.counted.restore(columns)
            self._proxies.setdefault(proxy_id, {})[instance] = process
        for proxy_id, instance, kind, label, count in load_counts(self._database):
            self._proxies[proxy_id][instance].counted.restore_count(kind, label, count)
        self._changed = dict.fromkeys(self._proxies, clock())

    def update(self, counters: Counters) -> CounterDelta:
        """Take the report of a process; returns what was added since its last one."""
        processes = self._proxies.setdefault(counters.proxy_id, {})
        first = counters.instance not in processes
        process = processes.setdefault(counters.instance, _Process(ProcessCounters()))
        counted, before = ProcessCounters.of(counters), process.counted
        if counters.partial:
            counted.labelled = before.labelled | counted.labelled
        if counted != before or counters.active_connections != process.active:
            self._changed.pop(counters.proxy_id, None)
            self._changed[counters.proxy_id] = self._clock()
        if counted != before:
            unsaved = self._unsaved.setdefault((counters.proxy_id, counters.instance), {})
            unsaved.update(counted.changes_since(before))
        delta = CounterDelta(_increments(before, counted), first, process.restored)
        process.counted, process.active, process.received = counted, counters.active_connections, self._clock()
        process.resident = counters.resident
        process.loop_busy, process.loop_turn_max_ms = counters.loop_busy, counters.loop_turn_max_ms
        process.restored = False
        if any(each.active for each in processes.values()):
            self._open.add(counters.proxy_id)
        else:
            self._open.discard(counters.proxy_id)
        return delta

    def proxy_ids(self) -> tuple[str, ...]:
        """All that ever reported and are not deleted."""
        return tuple(each for each in self._proxies if each != DELETED)

    def active(self) -> dict[str, int]:
        """The connections that are open, by proxy."""
        now = self._clock()
        return {
            proxy_id: sum(each.active for each in processes.values() if now - each.received < LIVE_FOR)
            for proxy_id, processes in self._proxies.items()
            if proxy_id != DELETED
        }

    @property
    def now(self) -> float:
        """The `since` with which later `stats` return what changed from now on."""
        return self._clock()

    def resident(self, proxy_ids: Iterable[str]) -> int:
        """Bytes of memory of the processes of these proxies, as they reported them."""
        now = self._clock()
        processes = (process for each in proxy_ids for process in self._proxies.get(each, {}).values())
        return sum(each.resident for each in processes if now - each.received < RESIDENT_FOR)

    def stats(self, proxy_ids: Iterable[str] = (), detailed: bool = False, since: float = 0.0) -> dict[str, ProxyStats]:
        """The totals of these proxies, of all when none is named; unknown ones are left out.

        Only `detailed` ones have the counts by status and latency. With `since` those that have not changed from then
        on may be left out.
        """
        wanted = tuple(proxy_ids) or self._changed_since(since)
        return {
            proxy_id: self._stats(self._proxies[proxy_id].values(), detailed)
            for proxy_id in wanted
            if proxy_id in self._proxies
        }

    def _changed_since(self, since: float) -> set[str]:
        """And those that may have changed without a report."""
        newest_first = takewhile(lambda each: each[1] >= since, reversed(self._changed.items()))
        return {proxy_id for proxy_id, _ in newest_first if proxy_id != DELETED} | self._open

    def total(self) -> ProxyStats:
        """The totals of all proxies together."""
        return self._stats(each for processes in self._proxies.values() for each in processes.values())

    def forget(self, proxy_id: str) -> None:
        """The proxy was deleted. What it has counted stays in the total, which never falls."""
        gone = self._proxies.pop(proxy_id, {})
        self._changed.pop(proxy_id, None)
        self._open.discard(proxy_id)
        kept = self._proxies.setdefault(DELETED, {}).setdefault(_FOLDED, _Process(ProcessCounters()))
        for process in gone.values():
            kept.counted.add(process.counted)
        self._unsaved[DELETED, _FOLDED] = kept.counted.changes_since(ProcessCounters())
        for table in ("words", "tallies"):
            self._database.execute(f"DELETE FROM {table} WHERE proxy_id = ?", (proxy_id,))  # noqa: S608
        self.save()

    def save(self) -> None:
        """Put on disk what has changed. Raises `sqlite3.Error`, and then everything is still to be saved."""
        if self._clock() - self._folded >= FOLD_PERIOD:
            self._fold()
        if not (self._unsaved or (self.participant is not None and self.participant.pending())):
            return
        with transaction(self._database):
            for (proxy_id, instance), counts in self._unsaved.items():
                process = self._proxies.get(proxy_id, {}).get(instance)
                if process is not None:  # else folded or forgotten meanwhile
                    self._store(proxy_id, instance, process.counted, counts)
            if self.participant is not None:
                self.participant.store()
        self._unsaved.clear()
        if self.participant is not None:
            self.participant.stored()

    def _store(self, proxy_id: str, instance: int, counted: ProcessCounters, counts: LabelledCounts) -> None:
        row = (proxy_id, instance, *counted.columns())
        self._database.execute(f"INSERT OR REPLACE INTO words ({_COLUMNS}) VALUES ({_MARKS})", row)  # noqa: S608 - names of ours
        store_counts(self._database, proxy_id, instance, counts)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _stats(self, processes: Iterable[_Process], detailed: bool = False) -> ProxyStats:
        total, active, resident, now = ProcessCounters(), 0, 0, self._clock()
        busy = turn_max_ms = 0.0
        for process in processes:
            total.add(process.counted)
            active += process.active if now - process.received < LIVE_FOR else 0
            resident += process.resident if now - process.received < RESIDENT_FOR else 0
            if now - process.received < LIVE_FOR:
                busy, turn_max_ms = max(busy, process.loop_busy), max(turn_max_ms, process.loop_turn_max_ms)
        labelled = {
            row.field: counts_of_kind(total.labelled, row.stored) for row in LABELLED if detailed or row is not STATUSES
        }
        return ProxyStats(
            values=tuple(total.values),
            active_connections=active,
            last_request=total.last_request,
            latency=tuple(sorted(latency_counts(total.labelled).items())) if detailed else (),
            resident=resident,
            loop_busy=busy,
            loop_turn_max_ms=turn_max_ms,
            **labelled,
        )

    def _fold(self) -> None:
        """Processes that are long gone, and aren't the newest of their proxy, become one row."""
        now = self._folded = self._clock()
        for proxy_id, processes in self._proxies.items():
            newest = max(processes)
            gone = [
                number
                for number, process in processes.items()
                if number not in (_FOLDED, newest) and now - process.received > FOLDED_AFTER
            ]
            if gone:
                self._fold_into_one(proxy_id, processes, gone)

    def _fold_into_one(self, proxy_id: str, processes: dict[int, _Process], gone: list[int]) -> None:
        folded = ProcessCounters()
        for number in (_FOLDED, *gone):
            if number in processes:
                folded.add(processes[number].counted)
        with transaction(self._database):
            keys = [(proxy_id, number) for number in gone]
            for table in ("words", "tallies"):
                self._database.executemany(f"DELETE FROM {table} WHERE proxy_id = ? AND instance = ?", keys)  # noqa: S608
            self._store(proxy_id, _FOLDED, folded, folded.changes_since(ProcessCounters()))
        for number in gone:
            del processes[number]
        processes[_FOLDED] = _Process(folded)


def _increments(before: ProcessCounters, after: ProcessCounters) -> Increments:
    """Never negative: the counters of a process only grow, whatever is on disk."""
    old, new = latency_counts(before.labelled), latency_counts(after.labelled)
    latency = {number: count - old.get(number, 0) for number, count in new.items() if count > old.get(number, 0)}
    counted = [max(0, after.values[place] - before.values[place]) for place in BUCKET_PLACES]
    return Increments([*counted, sum(latency.values()), *[0] * (len(FIELDS) - len(COUNTED))], latency)
