"""Counters by label, beside the plain ones: refusals by reason, requests by status, latencies by bucket.

On disk that is a row for each label, and so are plain counters that came after the first: without a column.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from actors.bus.messages.metrics import Counters
from actors.counters import COUNTERS, LABELLED, ZEROS

LATENCY = "latency"
"""The label is the number of a bucket of `actors.histogram`."""

LabelledCounts = dict[tuple[str, str], int]
"""Cumulative counts by kind (`stored` of a row of `actors.counters`, or `LATENCY`) and label."""

_PLAIN = tuple((place, row.stored or row.name) for place, row in enumerate(COUNTERS) if not row.column)
_PLACES = {kind: place for place, kind in _PLAIN}

SCHEMA = """
CREATE TABLE IF NOT EXISTS tallies (
    proxy_id TEXT, instance INTEGER, kind TEXT, reason TEXT, count INTEGER NOT NULL,
    PRIMARY KEY (proxy_id, instance, kind, reason)
) WITHOUT ROWID;
"""


def counts_of(counters: Counters) -> LabelledCounts:
    """The counts by label in a message."""
    counts = {(row.stored, label): count for row in LABELLED for label, count in getattr(counters, row.field).items()}
    return counts | {(LATENCY, str(number)): count for number, count in counters.latency}


def plain_rows(values: Sequence[Any], before: Sequence[Any] = ZEROS) -> LabelledCounts:
    """Those of the plain counters without a column that differ from `before`, as they stand on disk."""
    return {(kind, ""): values[place] for place, kind in _PLAIN if values[place] != before[place]}


def place_of(kind: str) -> int | None:
    """Which plain counter this kind on disk is; None for a labelled one."""
    return _PLACES.get(kind)


def of_kind(counts: LabelledCounts, kind: str) -> dict[str, int]:
    """The counts of one kind by label."""
    return {reason: count for (each, reason), count in sorted(counts.items()) if each == kind}


def changes(before: LabelledCounts, after: LabelledCounts) -> LabelledCounts:
    """Those of `after` that differ from `before`."""
    return {key: count for key, count in after.items() if before.get(key) != count}


def histogram(counts: LabelledCounts) -> dict[int, int]:
    """The latencies."""
    return {int(label): count for (kind, label), count in counts.items() if kind == LATENCY}


def load(database: sqlite3.Connection) -> Iterator[tuple[str, int, str, str, int]]:
    """The rows on disk: proxy, instance, kind, label and count."""
    yield from database.execute("SELECT proxy_id, instance, kind, reason, count FROM tallies")


def store(database: sqlite3.Connection, proxy_id: str, instance: int, counts: LabelledCounts) -> None:
    """Write the counts of one process, within the caller's transaction. Labels are never deleted."""
    rows = [(proxy_id, instance, kind, reason, count) for (kind, reason), count in counts.items()]
    database.executemany("INSERT OR REPLACE INTO tallies VALUES (?, ?, ?, ?, ?)", rows)
