"""The audit trail on the disk: an append-only table with a hash chain.

A row's content is one canonical JSON object: keys sorted, no spaces, UTF-8 as it is. Its hash is

    SHA-256(hash of the row before it, as 64 hex digits; a newline; the content)

with 64 zeros before the first. So a row that is altered, deleted, inserted or moved breaks the chain at that place.
Rows that are cut off at the end are detected by the table `head`, which every append moves in the same transaction,
and, if that is rewritten too, by a head that was noted elsewhere (`verify` takes it).

Every append is synced before it returns (WAL with `synchronous=FULL`). The same file has the tables of revisions
(`api.history`), which are written with the entries of their changes. The columns that are searched are computed from
the content by SQLite itself, so they can't differ from it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from actors.sqlite import open_database, open_for_reading, sync_each_commit, transaction
from api.audit.context import origin
from api.audit.masking import shortened
from api.history import SCHEMA as HISTORY_SCHEMA
from api.store.interface import StoreError, StoreWriteError
from config.files.paths import DataDir, PathError
from config.text.formatting import timestamp_text

log = logging.getLogger(__name__)

T = TypeVar("T")
Action = Callable[[sqlite3.Connection], T]

GENESIS = "0" * 64
_SILENT = {"resource": None, "before": None, "after": None, "outcome": "done", "details": None}
SEARCHABLE = {
    "timestamp": "$.timestamp",
    "action": "$.action",
    "outcome": "$.outcome",
    "user_id": "$.actor.user_id",
    "username": "$.actor.username",
    "credential_id": "$.credential.id",
    "address": "$.address",
    "request_id": "$.request_id",
    "resource_type": "$.resource.type",
    "resource_id": "$.resource.id",
}
_UNINDEXED = {"resource_name": "json_extract(content, '$.resource.name')"}
"""Expressions by which entries are searched without a column."""
_COLUMNS = ",\n".join(
    f"    {name} TEXT GENERATED ALWAYS AS (json_extract(content, '{path}')) VIRTUAL"
    for name, path in SEARCHABLE.items()
)
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS audit (
    seq INTEGER PRIMARY KEY, content TEXT NOT NULL, hash TEXT NOT NULL,
{_COLUMNS}
);
CREATE TABLE IF NOT EXISTS head (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, hash TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS audit_by_resource ON audit (resource_id);
CREATE INDEX IF NOT EXISTS audit_by_action ON audit (action);
CREATE INDEX IF NOT EXISTS audit_by_user ON audit (user_id);
CREATE INDEX IF NOT EXISTS audit_by_time ON audit (timestamp);
CREATE TRIGGER IF NOT EXISTS audit_is_not_altered BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
CREATE TRIGGER IF NOT EXISTS audit_is_not_cut BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class Head:
    """The last row: its number (0: there is none) and its hash."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One row as it is read."""

    seq: int
    content: dict[str, Any]
    hash: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows. `equal` are exact values by the names of `SEARCHABLE`; an action may end with `.*`.

    `start` and `end` are ISO 8601 texts as in the rows, both included; `below` is the row that a cursor has come to.
    """

    equal: dict[str, str]
    start: str | None = None
    end: str | None = None
    below: int | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """The chain is broken: the first bad row, and what is wrong with it."""

    seq: int
    error: str


class Trail:
    """The trail of one data directory, and its only writer. Thread-safe. Raises `StoreError`."""

    def __init__(self, data: DataDir, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._reading = threading.Lock()  # a long search holds up no change
        try:
            self._database = open_database(trail_file(data), _SCHEMA + HISTORY_SCHEMA, any_thread=True)
            sync_each_commit(self._database)
            self._head = _last_known(self._database)
            self._reader = sqlite3.connect(trail_file(data), isolation_level=None, check_same_thread=False)
        except (sqlite3.Error, PathError, OSError) as error:
            raise StoreError(f"{trail_file(data)}: {error}") from error

    def append(self, action: str, resource: dict[str, Any] | None = None, **more: Any) -> Entry:
        """Append one entry about an action of the current origin, durably. Raises `StoreWriteError`.

        `resource` is `{type, id, name}`; `more` may have `before`, `after`, `outcome` (else `done`) and `details`. Long
        fields are `shortened`.
        """
        return self.append_all([{"action": action, "resource": resource, **more}])[0]

    def append_all(self, rows: Sequence[Mapping[str, Any]], also: Action[None] | None = None) -> list[Entry]:
        """Append several entries, all of them or none; each has what `append` takes. Raises `StoreWriteError`.

        `also` is done in the same transaction.
        """
        current = origin()
        with self._lock:
            common = {**_SILENT, **self.stamp()}
            entries = self._write([{**common, **shortened(row)} for row in rows], also)
        current.rows += len(entries)
        return entries

    def stamp(self) -> dict[str, Any]:
        """The time, and whose request is served, as in an entry of this moment."""
        return {"timestamp": timestamp_text(self._clock()), **origin().fields()}

    def transact(self, action: Action[T]) -> T:
        """Do something with other tables of the file, in one transaction. Raises `StoreWriteError`."""
        with self._lock:
            try:
                with transaction(self._database) as database:
                    return action(database)
            except sqlite3.Error as error:
                raise StoreWriteError(f"the file of the audit trail: {error}") from error

    def find(self, selection: Selection, limit: int, offset: int) -> tuple[list[Entry], int]:
        """A page of entries, newest first, and how many there are in all. Raises `StoreError`."""
        where, values = _condition(selection)
        page = f"SELECT seq, content, hash FROM audit WHERE {where} ORDER BY seq DESC LIMIT ? OFFSET ?"  # noqa: S608 - the condition is ours, values are bound
        count = f"SELECT count(*) FROM audit WHERE {_condition(selection, counting=True)[0]}"  # noqa: S608
        with self._reading:
            try:
                rows = self._reader.execute(page, [*values, limit, offset]).fetchall()
                (total,) = self._reader.execute(count, _condition(selection, counting=True)[1]).fetchone()
            except sqlite3.Error as error:
                raise StoreError(f"the audit trail can't be read: {error}") from error
        return [Entry(seq, json.loads(content), digest) for seq, content, digest in rows], int(total)

    @property
    def head(self) -> Head:
        """The last row."""
        with self._lock:
            return self._head

    def close(self) -> None:
        """Close the file."""
        with self._lock, self._reading:
            self._reader.close()
            self._database.close()

    def _write(self, rows: Sequence[dict[str, Any]], also: Action[None] | None) -> list[Entry]:
        head, entries = self._head, []
        for row in rows:
            numbered = {"seq": head.seq + 1, **row}
            head = Head(head.seq + 1, chain_hash(head.hash, canonical_json(numbered)))
            entries.append(Entry(head.seq, numbered, head.hash))
        try:
            with transaction(self._database):
                self._database.executemany(
                    "INSERT INTO audit (seq, content, hash) VALUES (?, ?, ?)",
                    [(each.seq, canonical_json(each.content), each.hash) for each in entries],
                )
                self._database.execute("REPLACE INTO head VALUES (1, ?, ?)", (head.seq, head.hash))
                if also is not None:
                    also(self._database)
        except sqlite3.Error as error:
            raise StoreWriteError(f"the audit trail: {error}") from error
        self._head = head
        return entries


def trail_file(data: DataDir) -> Path:
    """Where the trail of a data directory lies."""
    return data.audit / "audit.sqlite"


def canonical_json(row: dict[str, Any]) -> str:
    """A row's content as it is hashed and stored."""
    return json.dumps(row, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def chain_hash(previous: str, content: str) -> str:
    """The hash of a row."""
    return hashlib.sha256(f"{previous}\n{content}".encode()).hexdigest()


def verify(data: DataDir, noted: Head | None = None, alone: bool = False) -> Head | Broken:
    """Follow the chain from its first row: the last row, or where the chain is broken.

    `noted` is a head that was written down elsewhere: it must be in the chain. Reads only; the product may be running
    unless the caller is `alone` with the data. Raises `StoreError` when there is no trail, or it can't be read at all.
    """
    file = trail_file(data)
    try:
        database = open_for_reading(file, alone)
        try:
            return _verify(database, noted)
        finally:
            database.close()
    except sqlite3.Error as error:
        raise StoreError(f"{file}: {error}") from error


def _verify(database: sqlite3.Connection, noted: Head | None) -> Head | Broken:
    database.execute("BEGIN")  # a snapshot, while the product may append
    head = Head(0, GENESIS)
    for seq, content, digest in database.execute("SELECT seq, content, hash FROM audit ORDER BY seq"):
        error = _error_of(seq, content, digest, head)
        if error is not None:
            return Broken(int(seq), error)
        head = Head(int(seq), str(digest))
        if noted is not None and noted.seq == head.seq and noted.hash != head.hash:
            return Broken(head.seq, "is another row than the one whose hash was noted")
    kept = _read_head(database)
    wanted = max(kept.seq, noted.seq if noted else 0)
    if wanted > head.seq:
        return Broken(head.seq + 1, f"is missing: there were {wanted} rows")
    return head if kept == head else Broken(head.seq, "is not the last row that was written")


def _error_of(seq: int, content: str, digest: str, before: Head) -> str | None:
    if seq != before.seq + 1:
        return f"follows row {before.seq}: what was between them is missing"
    try:
        row = json.loads(content)
    except (TypeError, ValueError):
        return "its content is not JSON"
    if not isinstance(row, dict) or row.get("seq") != seq:
        return "its content says that it is another row"
    return None if chain_hash(before.hash, content) == digest else "its content doesn't go with its hash"


def _read_head(database: sqlite3.Connection) -> Head:
    found = database.execute("SELECT seq, hash FROM head").fetchone()
    return Head(int(found[0]), str(found[1])) if found else Head(0, GENESIS)


def _last_known(database: sqlite3.Connection) -> Head:
    """Where to append. When row and head disagree, the trail was altered: that is logged, and the gap stays visible."""
    kept = _read_head(database)
    found = database.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    last = Head(int(found[0]), str(found[1])) if found else Head(0, GENESIS)
    if last != kept:
        log.critical("the audit trail was altered: `proxyfleet audit verify` says where")
    return max(last, kept, key=lambda head: head.seq)


def _condition(selection: Selection, counting: bool = False) -> tuple[str, list[Any]]:
    """The SQL condition and its values. `counting` leaves out the cursor, since the total counts all pages."""
    terms: list[str] = ["1"]
    values: list[Any] = []
    for name, value in selection.equal.items():
        if name == "action" and value.endswith(".*"):
            terms.append("substr(action, 1, ?) = ?")
            values += [len(value) - 1, value[:-1]]
        else:
            terms.append(f"{_UNINDEXED.get(name, name)} = ?")
            values.append(value)
    bounds = {
        "timestamp >= ?": selection.start,
        "timestamp <= ?": selection.end,
        "seq < ?": None if counting else selection.below,
    }
    given = {term: bound for term, bound in bounds.items() if bound is not None}
    terms += given
    values += given.values()
    return " AND ".join(terms), values
