"""What a process counts by word, beside its plain counters: refusals by reason, requests by status, latencies by
bucket, and records that were lost.

On disk a tally is a row for each word, so that new words need no new column.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from actors.bus.messages.metrics import Counters

REFUSED = "refused"
REPORTED = "reported"
DROPPED = "dropped"
INTERNAL = "internal_error"
STATUS = "status"
LATENCY = "latency"
"""The word is the number of a bucket of `actors.histogram`."""

Tally = dict[tuple[str, str], int]
"""Cumulative counts by kind (one of the words above) and reason."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS tallies (
    proxy_id TEXT, instance INTEGER, kind TEXT, reason TEXT, count INTEGER NOT NULL,
    PRIMARY KEY (proxy_id, instance, kind, reason)
) WITHOUT ROWID;
"""


def tally_of(counters: Counters) -> Tally:
    """What `counters` says by word."""
    tally = {(REFUSED, reason): count for reason, count in counters.refusals.items()}
    tally |= {(REPORTED, reason): count for reason, count in counters.reported.items()}
    tally |= {(STATUS, status): count for status, count in counters.statuses.items()}
    tally |= {(LATENCY, str(number)): count for number, count in counters.latency}
    if counters.records_dropped:
        tally[DROPPED, ""] = counters.records_dropped
    if counters.internal_errors:
        tally[INTERNAL, ""] = counters.internal_errors
    return tally


def add(tally: Tally, other: Tally) -> None:
    """Sum `other` up into `tally`."""
    for key, count in other.items():
        tally[key] = tally.get(key, 0) + count


def of_kind(tally: Tally, kind: str) -> dict[str, int]:
    """The counts of one kind by reason."""
    return {reason: count for (each, reason), count in sorted(tally.items()) if each == kind}


def changes(before: Tally, after: Tally) -> Tally:
    """What of `after` is other than before."""
    return {key: count for key, count in after.items() if before.get(key) != count}


def histogram(tally: Tally) -> dict[int, int]:
    """The latencies."""
    return {int(word): count for (kind, word), count in tally.items() if kind == LATENCY}


def load(database: sqlite3.Connection) -> Iterator[tuple[str, int, Tally]]:
    """What is on disk, word by word: proxy, process, and a tally of one word."""
    for proxy_id, instance, kind, reason, count in database.execute("SELECT * FROM tallies"):
        yield proxy_id, instance, {(kind, reason): count}


def store(database: sqlite3.Connection, proxy_id: str, instance: int, tally: Tally) -> None:
    """Put the tally of one process on disk, within the caller's transaction. Words never go away again."""
    rows = [(proxy_id, instance, kind, reason, count) for (kind, reason), count in tally.items()]
    database.executemany("INSERT OR REPLACE INTO tallies VALUES (?, ?, ?, ?, ?)", rows)
