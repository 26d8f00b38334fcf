"""Time series: what was counted in each 10 s, 1 min, 5 min, hour and day, by proxy and in total.

Whatever is counted is added to the open bucket of every level at once. So nothing has to be rolled up later, and an
hour is the sum of its minutes whatever dies when. The buckets are kept in the database of the totals and committed in
the transaction that saves those, so a restart of the collector neither loses nor doubles anything.

Buckets are aligned to the wall clock. One that is set back makes buckets be filled a second time; therefore it is kept
how many seconds each bucket was really filled (by the monotonic clock), and rates are per such second.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from actors.metrics.increments import FIELDS, Increments, add_counts, pack_latency, unpack_latency

TOTAL = ""
"""Stands for all proxies together, deleted ones too, in place of an id."""
RAW = 10
DAY = 24 * 3600
RETENTION = {RAW: DAY, 60: 3 * DAY, 300: 30 * DAY, 3600: 365 * DAY, DAY: 5 * 365 * DAY}
"""Seconds that the buckets of each level are kept, by the seconds that a bucket is wide."""
UNSTORED_MAX = 100_000
"""Buckets that may wait for a disk that can't be written to; beyond that the narrow ones are dropped."""

_COLUMNS = ", ".join(FIELDS)
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS points (
    step INTEGER, t INTEGER, proxy_id TEXT, {", ".join(f"{name} NOT NULL" for name in FIELDS)}, latency BLOB,
    PRIMARY KEY (step, t, proxy_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS machine (
    step INTEGER, t INTEGER, seconds REAL NOT NULL, samples INTEGER NOT NULL, cpu REAL NOT NULL, memory REAL NOT NULL,
    PRIMARY KEY (step, t)
) WITHOUT ROWID;
"""
_INSERT = (
    f"INSERT OR REPLACE INTO points (step, t, proxy_id, {_COLUMNS}, latency)"  # noqa: S608 - names of ours
    f" VALUES (?, ?, ?, {', '.join('?' * len(FIELDS))}, ?)"
)
_SLOTS = "WITH slot(t) AS (SELECT value FROM json_each(?))"

_Key = tuple[int, int, str]


@dataclass(slots=True)
class MachineSums:
    """The machine in a bucket: seconds that it was filled, samples, and their sums in percent."""

    seconds: float = 0.0
    samples: int = 0
    cpu: float = 0.0
    memory: float = 0.0


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket that was read. `increments` is None when nothing was counted."""

    start: int
    increments: Increments | None
    machine: MachineSums


class Series:
    """The buckets in `database`, whose owner begins and commits transactions."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.executescript(SCHEMA)
        self._open: dict[_Key, Increments] = {}
        self._changed: set[_Key] = set()
        self._machine: dict[tuple[int, int], MachineSums] = {}
        self._machine_changed: set[tuple[int, int]] = set()

    def add(self, proxy_id: str, increments: Increments, at: float) -> None:
        """Count for a proxy (or `TOTAL`) in the buckets of `at`, Unix seconds."""
        for step in RETENTION:
            key = (step, int(at // step) * step, proxy_id)
            if key not in self._open:
                self._open[key] = self._read(key)
            self._open[key].add(increments)
            self._changed.add(key)

    def add_machine(self, seconds: float, cpu: float, memory: float, at: float) -> None:
        """One sample of the machine that stands for the `seconds` before `at`."""
        for step in RETENTION:
            key = (step, int(at // step) * step)
            if key not in self._machine:
                self._machine[key] = self._read_machine(key)
            known = self._machine[key]
            known.seconds, known.samples = known.seconds + seconds, known.samples + 1
            known.cpu, known.memory = known.cpu + cpu, known.memory + memory
            self._machine_changed.add(key)

    # --- on disk ---

    def store(self) -> None:
        """Write what has changed, within the caller's transaction; call `stored` once it is committed, or `failed`."""
        rows = ((*key, *self._open[key].values, pack_latency(self._open[key].latency)) for key in self._changed)
        self._database.executemany(_INSERT, rows)
        samples = ((key, self._machine[key]) for key in self._machine_changed)
        self._database.executemany(
            "INSERT OR REPLACE INTO machine VALUES (?, ?, ?, ?, ?, ?)",
            [(*key, each.seconds, each.samples, each.cpu, each.memory) for key, each in samples],
        )

    def stored(self, now: float) -> None:
        """The transaction is committed: buckets that are over by `now` leave the memory."""
        self._changed.clear()
        self._machine_changed.clear()
        self._open = {key: each for key, each in self._open.items() if key[1] + key[0] > now - RAW}
        self._machine = {key: each for key, each in self._machine.items() if key[1] + key[0] > now - RAW}

    def failed(self) -> int:
        """The disk can't be written to: bound the memory. Returns the number of buckets that are lost."""
        if len(self._changed) <= UNSTORED_MAX:
            return 0
        lost = {key for key in self._changed if key[0] < 3600}
        self._changed -= lost
        for key in lost:
            del self._open[key]
        return len(lost)

    def forget_old(self, now: float) -> None:
        """Remove what is older than it is kept."""
        for step, retention in RETENTION.items():
            for table in ("points", "machine"):
                self._database.execute(f"DELETE FROM {table} WHERE step = ? AND t < ?", (step, now - retention - step))  # noqa: S608

    def last_filled(self) -> float | None:
        """Until when, in Unix seconds, something is known to have been counted."""
        row = self._database.execute("SELECT t FROM machine WHERE step = ? ORDER BY t DESC LIMIT 1", (RAW,)).fetchone()
        return None if row is None else float(row[0] + RAW)

    # --- reading ---

    def lately(self, step: int, since: float) -> list[tuple[str, int, float, float]]:
        """Of each proxy and bucket from `since` on: its id, the start, requests, and errors and refusals."""
        return self._database.execute(
            "SELECT proxy_id, t, requests, errors + denied FROM points WHERE step = ? AND t >= ? AND proxy_id <> ?",
            (step, since, TOTAL),
        ).fetchall()

    def read(
        self, step: int, start: int, end: int, proxy_ids: Iterable[str] | None, latency: bool = False
    ) -> list[Bucket]:
        """All buckets from `start` (aligned) that begin before `end`: of these proxies together, of all with None.

        Histograms are only read when `latency` is wanted. What isn't stored yet isn't seen.
        """
        wanted = (TOTAL,) if proxy_ids is None else tuple(proxy_ids)
        slots = list(range(start, end, step))
        sums = self._sums(step, slots, wanted)
        if latency:
            self._add_latency(sums, step, slots, wanted)
        machines = {
            t: MachineSums(*sampled)
            for t, *sampled in self._database.execute(
                "SELECT t, seconds, samples, cpu, memory FROM machine WHERE step = ? AND t >= ? AND t < ?",
                (step, start, end),
            )
        }
        return [Bucket(t, sums.get(t), machines.get(t) or MachineSums()) for t in range(start, end, step)]

    def _sums(self, step: int, slots: list[int], wanted: tuple[str, ...]) -> dict[int, Increments]:
        summed = ", ".join(f"SUM({name})" for name in FIELDS)
        rows = self._select(f"slot.t, {summed}", "GROUP BY slot.t", step, slots, wanted)
        return {t: Increments(list(values)) for t, *values in rows}

    def _add_latency(self, sums: dict[int, Increments], step: int, slots: list[int], wanted: tuple[str, ...]) -> None:
        for t, packed in self._select("slot.t, latency", "AND latency IS NOT NULL", step, slots, wanted):
            add_counts(sums[t].latency, unpack_latency(packed))

    def _select(self, what: str, more: str, step: int, slots: list[int], wanted: tuple[str, ...]) -> sqlite3.Cursor:
        marks = ", ".join("?" * len(wanted))
        sql = (
            f"{_SLOTS} SELECT {what} FROM slot CROSS JOIN points "  # noqa: S608 - names of ours and question marks
            f"ON points.step = ? AND points.t = slot.t AND points.proxy_id IN ({marks}) {more}"
        )
        return self._database.execute(sql, (json.dumps(slots), step, *wanted))

    def _read(self, key: _Key) -> Increments:
        row = self._database.execute(
            f"SELECT {_COLUMNS}, latency FROM points WHERE step = ? AND t = ? AND proxy_id = ?",  # noqa: S608
            key,
        ).fetchone()
        return Increments() if row is None else Increments(list(row[:-1]), unpack_latency(row[-1]))

    def _read_machine(self, key: tuple[int, int]) -> MachineSums:
        row = self._database.execute(
            "SELECT seconds, samples, cpu, memory FROM machine WHERE step = ? AND t = ?", key
        ).fetchone()
        return MachineSums() if row is None else MachineSums(*row)
