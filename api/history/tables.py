"""What is written to the tables of revisions, each function within a transaction of its caller."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from actors.sqlite import add_columns
from api.history.documents import KINDS, DocumentChange, Packing
from api.store import Store

PRUNED_AT_ONCE = 500
"""Changes that one transaction deletes, so that no change of the configuration waits for long."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS revisions (
    number INTEGER PRIMARY KEY, key INTEGER NOT NULL UNIQUE, timestamp TEXT NOT NULL, author TEXT NOT NULL,
    restored INTEGER, undone INTEGER NOT NULL DEFAULT 0,
    created INTEGER NOT NULL DEFAULT 0, updated INTEGER NOT NULL DEFAULT 0, deleted INTEGER NOT NULL DEFAULT 0,
    kinds TEXT NOT NULL DEFAULT ',', probes TEXT NOT NULL DEFAULT '[]', size INTEGER NOT NULL DEFAULT 0,
    undecided INTEGER NOT NULL DEFAULT 0,
    user_id TEXT GENERATED ALWAYS AS (json_extract(author, '$.actor.user_id')) VIRTUAL,
    username TEXT GENERATED ALWAYS AS (json_extract(author, '$.actor.username')) VIRTUAL
);
CREATE TABLE IF NOT EXISTS revision_changes (
    key INTEGER NOT NULL, place INTEGER NOT NULL, collection TEXT NOT NULL, id TEXT NOT NULL, name TEXT,
    fields TEXT NOT NULL, before BLOB, after BLOB, PRIMARY KEY (key, place)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS revision_changes_by_id ON revision_changes (id, key);
CREATE INDEX IF NOT EXISTS revision_changes_by_name ON revision_changes (name, key);
CREATE INDEX IF NOT EXISTS revisions_undecided ON revisions (number) WHERE undecided;
"""
"""`author` is JSON: who, by which credential, from where, in which request. `restored` is the revision whose state it
restored, NULL for none; `undone` the one that it undid, 0 for none. `kinds` has each kind between commas.
`probes` is JSON: for each store with a part in the revision its name, its step before, and collection and id of a
changed document. `undecided`: whether the changes were made is found out at the next start. `size`: bytes of all
bodies. `key` is what a revision's changes are found by: its number, or a negative number if they were staged before it
was there."""


class Probe(NamedTuple):
    """How to find out whether the changes of a revision were made: a document of `store` is changed after `step`."""

    store: str
    step: int
    collection: str
    id: str


def last_number(database: sqlite3.Connection) -> int:
    """The number of the last revision, 0 for none."""
    return int(database.execute("SELECT max(number) FROM revisions").fetchone()[0] or 0)


def bring_forward(database: sqlite3.Connection) -> None:
    """Add what the tables of an earlier release lack."""
    add_columns(database, "revisions", ["undone"])


class Purpose(NamedTuple):
    """What a revision is for, if it takes back others: whose state it restores, or which one it undoes."""

    restored: int | None = None
    undone: int | None = None


NO_PURPOSE = Purpose()


def insert(
    database: sqlite3.Connection, number: int, purpose: Purpose, origin: Mapping[str, Any], key: int | None = None
) -> None:
    """Add a revision, unless it is there already. `origin` has `timestamp`, and what is known of the author."""
    author = json.dumps({name: value for name, value in origin.items() if name != "timestamp"})
    database.execute(
        "INSERT OR IGNORE INTO revisions (number, key, timestamp, author, restored, undone) VALUES (?, ?, ?, ?, ?, ?)",
        [number, number if key is None else key, origin["timestamp"], author, purpose.restored, purpose.undone or 0],
    )


Row = tuple[int, int, str, str, str | None, str, bytes | None, bytes | None]
"""Of `revision_changes`."""


def rows_of(key: int, first: int, changes: Sequence[DocumentChange], packing: Packing) -> list[Row]:
    """The rows of changes, from the place `first`. Raises `StoreWriteError`."""
    return [_row(key, place, each, packing) for place, each in enumerate(changes, first)]


def _row(key: int, place: int, change: DocumentChange, packing: Packing) -> Row:
    before, after = packing.pack(change.before), packing.pack(change.after)
    return key, place, change.collection, change.id, change.name, json.dumps(change.fields), before, after


def add_changes(database: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Add changes to a revision, or to one that is not there yet."""
    database.executemany("INSERT INTO revision_changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


def sum_up(database: sqlite3.Connection, key: int, probe: Probe) -> None:
    """All changes that `probe` is about are there."""
    sql = "UPDATE revisions SET probes = json_insert(probes, '$[#]', json(?)) WHERE key = ?"
    database.execute(sql, [json.dumps(probe), key])
    _count(database, key)


def take_back(database: sqlite3.Connection, key: int, first: int = 0) -> None:
    """Remove the changes of a revision from the place `first`, and with all of them the revision.

    Staged changes are left to `orphan`.
    """
    if key > 0:
        database.execute("DELETE FROM revision_changes WHERE key = ? AND place >= ?", [key, first])
    if first:
        _count(database, key)
    else:
        database.execute("DELETE FROM revisions WHERE key = ?", [key])


def mark_undecided(database: sqlite3.Connection, key: int) -> None:
    """It will turn out at the next start whether this revision was made."""
    database.execute("UPDATE revisions SET undecided = 1 WHERE key = ?", [key])


def _count(database: sqlite3.Connection, key: int) -> None:
    """Bring the columns that sum up the changes up to date."""
    *counts, found = database.execute(
        "SELECT total(before IS NULL), total(before IS NOT NULL AND after IS NOT NULL), total(after IS NULL),"
        " total(ifnull(length(before), 0) + ifnull(length(after), 0)), group_concat(DISTINCT collection)"
        " FROM revision_changes WHERE key = ?",
        [key],
    ).fetchone()
    kinds = "".join(f"{KINDS[each]}," for each in found.split(","))
    database.execute(
        "UPDATE revisions SET created = ?, updated = ?, deleted = ?, size = ?, kinds = ? WHERE key = ?",
        [*map(int, counts), f",{kinds}", key],
    )


def lowest_key(database: sqlite3.Connection) -> int:
    """The last key of staged changes, which are negative; 0 for none."""
    return min(0, database.execute("SELECT min(key) FROM revision_changes").fetchone()[0] or 0)


# --- at the start -------------------------------------------------------------------------------------------------


def settle(database: sqlite3.Connection, stores: Mapping[str, Store]) -> int:
    """Remove what was not made of the revisions at the end, and of those that are undecided; how many.

    For each of `stores`, by name, back to its last revision that was made.
    """
    removed, unsure = 0, set(stores)
    for key, text, undecided in database.execute(
        "SELECT key, probes, undecided FROM revisions ORDER BY number DESC"
    ).fetchall():
        probes = [each for each in (Probe(*values) for values in json.loads(text)) if each.store in stores]
        if not probes or not (undecided or unsure & {each.store for each in probes}):
            continue
        if any(stores[each.store].changed_after(each.collection, each.id, each.step) for each in probes):
            unsure -= {each.store for each in probes}
            database.execute("UPDATE revisions SET undecided = 0 WHERE key = ?", [key])
        else:
            take_back(database, key)
            removed += 1
    return removed


# --- now and then -------------------------------------------------------------------------------------------------


def beyond(database: sqlite3.Connection, oldest: datetime, most: int, size: int, last: int) -> int | None:
    """The key of the first revision, if it is older than `oldest`, or there are too many, or too many bytes.

    Never that of revision `last`.
    """
    row = database.execute("SELECT number, timestamp, key FROM revisions ORDER BY number LIMIT 1").fetchone()
    if row is None or row[0] >= last:
        return None
    count, total = database.execute("SELECT count(*), total(size) FROM revisions").fetchone()
    old = datetime.fromisoformat(row[1]) < oldest
    return int(row[2]) if old or count > most or total > size else None


def orphan(database: sqlite3.Connection, staged: Collection[int]) -> int | None:
    """The key of staged changes that were not made; not one of `staged`, which may be."""
    found = database.execute(
        "SELECT DISTINCT key FROM revision_changes WHERE key < 0 AND key NOT IN (SELECT key FROM revisions)"
    )
    return next((int(key) for (key,) in found if key not in staged), None)


def delete_some(database: sqlite3.Connection, key: int) -> bool:
    """Delete some changes of a revision, and after the last of them the revision; whether there are more."""
    deleted = database.execute(
        "DELETE FROM revision_changes WHERE key = ? AND place IN"
        " (SELECT place FROM revision_changes WHERE key = ? LIMIT ?)",
        [key, key, PRUNED_AT_ONCE],
    ).rowcount
    if deleted == PRUNED_AT_ONCE:
        return True
    database.execute("DELETE FROM revisions WHERE key = ?", [key])
    return False
