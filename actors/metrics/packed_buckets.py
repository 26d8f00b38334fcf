"""Buckets of many proxies packed into one row each, so that the sum over hundreds of proxies is quick.

A bucket that is over is copied from the rows of `points`, one for each proxy, to one row of the table `sheets`. That
holds a record for each proxy: the same integers in the same places, little-endian, each in a lane that is as wide as
the sum over all proxies needs. Therefore adding up records is adding up long integers, which the interpreter does in
compiled code: 288 packed buckets of 200 proxies take some 15 ms, where as many rows with their histograms would take a
quarter of a second.

A packed bucket is only a copy: an increment that comes late for it deletes it, and it is packed again. Buckets of few
proxies are not packed, since rows are as quick. Packed buckets are kept for a shorter time than the rows (`KEPT`),
since they take about as much room. A scope of 200 proxies over a day is a bar of docs/benchmarks.md: with rows alone it
takes 17 times as long.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from math import isqrt

import msgpack

from actors.metrics.increments import FIELDS, FRACTIONS, PLACE, Increments, unpack_latency

PROXIES_MIN = 16
"""A bucket of fewer proxies is not packed, and a query for fewer is read row by row."""
PACKED_AT_ONCE = 4
"""Buckets of each level that are packed in one second, so that many that are missing don't delay the collector."""
DAY = 24 * 3600
KEPT = {60: DAY + 3600, 300: 8 * DAY, 3600: 62 * DAY, DAY: 5 * 365 * DAY}
"""Seconds that the packed buckets of each level are kept, by the seconds that a bucket is wide."""
GRACE = 5
"""Seconds that a bucket has been over when it is packed."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS sheets (
    step INTEGER, t INTEGER, ids BLOB NOT NULL, form TEXT NOT NULL, numbers BLOB NOT NULL, records BLOB NOT NULL,
    PRIMARY KEY (step, t)
);
CREATE TABLE IF NOT EXISTS sealed (step INTEGER PRIMARY KEY, until INTEGER NOT NULL);
"""
_MICRO = 1e6
"""Seconds are packed as microseconds."""
_SECONDS = tuple(PLACE[name] for name in FRACTIONS)
_LANES = {2: "H", 4: "I", 8: "Q"}

Row = tuple[str, Increments]
"""A proxy and its increments in a bucket."""


class PackedBuckets:
    """The packed buckets in `database`; only reads and writes, the owner commits."""

    def __init__(self, database: sqlite3.Connection, anew: bool = False) -> None:
        """With `anew` those that are there are deleted, as they have fewer counters."""
        self._database = database
        if anew:
            database.executescript("DROP TABLE IF EXISTS sheets; DROP TABLE IF EXISTS sealed;")
        database.executescript(SCHEMA)
        self._packed_until: dict[int, int] = {}
        self.reread()

    def changed(self, step: int, t: int) -> None:
        """Drop the copy of the bucket at `t`, to which the caller has written in the transaction that is under way."""
        if t < self._packed_until.get(step, 0):
            self._database.execute("DELETE FROM sheets WHERE step = ? AND t >= ?", (step, t))
            self._set_packed_until(step, t)

    def pack(self, now: float) -> None:
        """Pack some of the buckets that are over by `now` (Unix seconds), within the caller's transaction."""
        for step, until in self._packed_until.items():
            for t in self._over(step, max(until, int(now) - KEPT[step]), now):
                self._pack_bucket(step, t)
                self._set_packed_until(step, t + step)

    def forget_old(self, now: float) -> None:
        """Remove what is older than it is kept."""
        for step, kept in KEPT.items():
            self._database.execute("DELETE FROM sheets WHERE step = ? AND t < ?", (step, now - kept - step))

    def reread(self) -> None:
        """The caller's transaction was rolled back."""
        known = dict(self._database.execute("SELECT step, until FROM sealed"))
        self._packed_until = {step: known.get(step, 0) for step in KEPT}

    def read(self, step: int, start: int, end: int, proxy_ids: tuple[str, ...], latency: bool) -> dict[int, Increments]:
        """The sums of these proxies in those buckets that are packed, by their start."""
        if len(proxy_ids) < PROXIES_MIN or step not in self._packed_until:
            return {}
        selection = _Selection(frozenset(proxy_ids))
        rows = self._database.execute(
            "SELECT t, ids, form, numbers, records FROM sheets WHERE step = ? AND t >= ? AND t < ?", (step, start, end)
        )
        return {
            t: _sum(selection.records(ids, layout, records), layout, numbers, latency)
            for t, ids, layout, numbers, records in rows
        }

    # --- from rows to packed buckets ---

    def _over(self, step: int, until: int, now: float) -> Iterator[int]:
        """The next buckets from `until` on that are over and have anything in them."""
        for _ in range(PACKED_AT_ONCE):
            row = self._database.execute(
                "SELECT t FROM points WHERE step = ? AND t >= ? ORDER BY t LIMIT 1", (step, until)
            ).fetchone()
            if row is None or row[0] + step + GRACE > now:
                return
            yield row[0]
            until = row[0] + step

    def _pack_bucket(self, step: int, t: int) -> None:
        columns = ", ".join(FIELDS)
        rows = self._database.execute(
            f"SELECT proxy_id, latency, {columns} FROM points WHERE step = ? AND t = ? AND proxy_id != ''",  # noqa: S608
            (step, t),
        ).fetchall()
        if len(rows) >= PROXIES_MIN:
            packed = pack(
                [(each, Increments(list(values), unpack_latency(latency))) for each, latency, *values in rows]
            )
            self._database.execute("INSERT OR REPLACE INTO sheets VALUES (?, ?, ?, ?, ?, ?)", (step, t, *packed))

    def _set_packed_until(self, step: int, t: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO sealed VALUES (?, ?)", (step, t))
        self._packed_until[step] = t


class _Selection:
    """The records of some proxies. The proxies of one packed bucket are mostly those of the one before."""

    def __init__(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self._places: dict[bytes, list[int] | None] = {}

    def records(self, ids: bytes, layout: str, records: bytes) -> bytes:
        """Those of `records` that are wanted."""
        if ids not in self._places:
            self._places[ids] = self._find(msgpack.unpackb(ids))
        places = self._places[ids]
        if places is None:
            return records
        size = struct.calcsize(layout)
        return b"".join([records[place * size : place * size + size] for place in places])

    def _find(self, ids: list[str]) -> list[int] | None:
        """None: all of them."""
        places = [place for place, each in enumerate(ids) if each in self._wanted]
        return None if len(places) == len(ids) else places


def pack(rows: list[Row]) -> tuple[bytes, str, bytes, bytes]:
    """Ids of the proxies, `struct` format of a record, numbers of the latencies in it, and the records."""
    numbers = sorted({number for _id, each in rows for number in each.latency})
    records = [(*_whole(each.values), *(each.latency.get(number, 0) for number in numbers)) for _id, each in rows]
    layout = "<" + "".join(_lane(sum(column)) for column in zip(*records, strict=True))
    ids = msgpack.packb([proxy_id for proxy_id, _increments in rows])
    return ids, layout, msgpack.packb(numbers), b"".join([struct.pack(layout, *record) for record in records])


def _sum(records: bytes, layout: str, numbers: bytes, latency: bool) -> Increments:
    total = struct.unpack(layout, _added_up(records, struct.calcsize(layout)))
    values: list[float] = list(total[: len(FIELDS)])
    for place in _SECONDS:
        values[place] /= _MICRO
    counts = zip(msgpack.unpackb(numbers), total[len(FIELDS) :], strict=True) if latency else ()
    return Increments(values, {number: count for number, count in counts if count})


def _lane(most: int) -> str:
    """The narrowest lane that a sum fits into."""
    return next(lane for width, lane in _LANES.items() if most < 1 << 8 * width)


def _whole(values: list[float]) -> Iterator[int]:
    for place, value in enumerate(values):
        yield max(0, round(value * _MICRO) if place in _SECONDS else int(value))


def _added_up(records: bytes, size: int) -> bytes:
    """The sum of all records, lane by lane: first of long rows of records, then of those in the row that is left."""
    side = isqrt(len(records) // size) + 1
    for stride in (side * size, size):
        parts = [int.from_bytes(records[at : at + stride], "little") for at in range(0, len(records), stride)]
        records = sum(parts).to_bytes(stride, "little")
    return records
