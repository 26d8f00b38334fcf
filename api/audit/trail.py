"""The audit trail on the disk: an append-only table with a hash chain.

A row's content is one canonical JSON object: keys sorted, no spaces, UTF-8 as it is. Its hash is

    SHA-256(hash of the row before it, as 64 hex digits; a newline; the content)

with 64 zeros before the first. So a row that is altered, deleted, inserted or moved breaks the chain at that place.
Rows that are cut off at the end are detected by the table `head`, which every append moves in the same transaction,
and, if that is rewritten too, by a head that was noted elsewhere (`verify` takes it).

An entry about a change of documents is in the transaction of that change (`api.engine.commit`), any other one in its
own. The columns that are searched are computed from the content by SQLite itself, so they can't differ from it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from actors.sqlite import open_for_reading
from api.audit.audit_context import origin
from api.audit.masking import shortened
from api.store import CommitRefused, StoreError
from api.store.fleet_file import FleetFile, ReadingConnection
from config.files.paths import DataDir
from config.text.formatting import timestamp_text

log = logging.getLogger(__name__)

GENESIS = "0" * 64
_SILENT = {"resource": None, "before": None, "after": None, "outcome": "done", "details": None}
_UNINDEXED = {"resource_name": "json_extract(content, '$.resource.name')"}
"""Expressions by which entries are searched without a column."""


_NO_JSON = "its content is not JSON"
"""Such a row has no place in the table."""

Row = tuple[int, str, str]
"""An entry as it is stored: its number, its content and its hash."""
Place = tuple[str, str, int]
"""Of an entry among those of several nodes: its time, the id of its node, its number."""


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
    """Which rows. `equal` are exact values by the names of `api.store.schema.SEARCHABLE`; an action may end with `.*`.

    `start` and `end` are ISO 8601 texts as in the rows, both included; `below` is the row that a cursor has come to.
    Rows of this `node` are among those of others: in the order of `Place`, and `before` is the last one of a page.
    """

    equal: dict[str, str | int]
    start: str | None = None
    end: str | None = None
    below: int | None = None
    node: str | None = None
    before: Place | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """The chain is broken: the first bad row, and what is wrong with it."""

    seq: int
    error: str


class FoundEntries(NamedTuple):
    """A page of audit trails, newest first, and how many entries there are, or as many `at_least`.

    None stands for a row that is no entry.
    """

    rows: Sequence[tuple[Place, Entry | None]]
    total: int
    at_least: bool = False


class FleetTrails(Protocol):
    """The audit trails of all nodes. Waits for the database; raises `StoreError`."""

    def find(self, selection: Selection, nodes: Collection[str] | None, limit: int, offset: int) -> FoundEntries:
        """A page of the entries of these nodes, by their ids, or of all that there ever were."""
        ...

    def heads(self, nodes: Collection[str]) -> Mapping[str, Head]:
        """By id, the last entry of these nodes that the database has."""
        ...

    def verify(self) -> Mapping[str, Head | Broken]:
        """Follow all chains that the database has: by node, the last entry, or where it is broken."""
        ...


class Trail:
    """The trail of one file. Thread-safe. Raises `StoreError`."""

    def __init__(
        self,
        file: FleetFile,
        clock: Callable[[], float] = time.time,
        unsettled: Callable[[], Sequence[Row]] = lambda: (),
    ) -> None:
        """`unsettled` are entries that others may have already as the next ones: then no others become these."""
        self._file = file
        self._clock = clock
        self._unsettled = unsettled
        with file.reading() as database:
            self._altered = _last_if_altered(database)
            self.durable = _read_head(database).seq
            """The number of the last row that is on the disk, while others may be under way."""
        self._reading = ReadingConnection(file.path)

    def append(self, action: str, resource: dict[str, Any] | None = None, **more: Any) -> Entry:
        """Append one entry about an action of the current origin, durably. Raises `StoreWriteError`.

        `resource` is `{type, id, name}`; `more` may have `before`, `after`, `outcome` (else `done`) and `details`. Long
        fields are `shortened`.
        """
        return self.append_all([{"action": action, "resource": resource, **more}])[0]

    def append_all(self, rows: Sequence[Mapping[str, Any]]) -> list[Entry]:
        """Append several entries, all of them or none; each has what `append` takes. Raises `StoreWriteError`."""
        with self._file.transaction(sum(len(str(each)) for each in rows)):
            unsettled = self._unsettled()
            if unsettled and unsettled[0][0] == self.head.seq + 1:
                self.insert(unsettled)
            made = self.rows_of(rows)
            self.insert(made)
        origin().rows += len(made)
        return [Entry(seq, json.loads(content), digest) for seq, content, digest in made]

    def rows_of(self, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
        """Entries as they are stored, for `insert` in the same transaction; each has what `append` takes."""
        contents = [self._content(row) for row in rows]
        stamp, made, head = {"timestamp": self._moment()}, [], self.head
        for each in contents:
            content = canonical_json({**each, "seq": head.seq + 1, **stamp})
            head = Head(head.seq + 1, chain_hash(head.hash, content))
            made.append((head.seq, content, head.hash))
        return made

    def insert(self, rows: Iterable[Row]) -> None:
        """Append entries that follow the last one, within a transaction."""
        last = Head(0, GENESIS)

        def numbered(number: int) -> Iterator[tuple[int, str, str, int]]:
            nonlocal last
            for seq, content, digest in rows:
                last = Head(seq, digest)
                yield seq, content, digest, number

        with self._file.transaction() as database:
            database.executemany(
                "INSERT INTO audit (seq, content, hash, commit_number) VALUES (?, ?, ?, ?)",
                numbered(self._file.upcoming()),
            )
            if last.seq:
                database.execute("REPLACE INTO head VALUES (1, ?, ?)", (last.seq, last.hash))
                self._file.after(lambda: self._written(last.seq))

    def parts(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """An entry for `joined`: its content before and behind `seq` and `timestamp`, which it gets there."""
        content = self._content(row)
        later = {name: each for name, each in content.items() if name > "timestamp"}
        before = canonical_json({name: each for name, each in content.items() if name < "seq"})
        return f"{before[:-1]},", f",{canonical_json(later)[1:]}" if later else "}"

    def joined(self, parts: Iterable[tuple[str, str]]) -> Iterator[Row]:
        """Entries as they are stored, of their `parts`, for `insert` while no others are appended."""
        head, stamp = self.head, json.dumps(self._moment())
        for before, after in parts:
            content = f'{before}"seq":{head.seq + 1},"timestamp":{stamp}{after}'
            head = Head(head.seq + 1, chain_hash(head.hash, content))
            yield head.seq, content, head.hash

    def new_of(self, rows: Sequence[Row], of_ledger: bool = False) -> tuple[Row, ...]:
        """The entries of another file that are to be inserted here, within a transaction. Raises `CommitRefused`.

        Those that are there already, since one file is a copy of the other, are left alone. Of a ledger each later one
        is taken: one that was altered there is logged, and is as it was where that is known.
        """
        if not rows:
            return ()
        own = {each[0]: each for each in self._unsettled()}
        with self._file.reading() as database:
            known = "SELECT 1 FROM audit WHERE seq = ? AND content = ? AND hash = ?"
            fresh = [each for each in rows if database.execute(known, each).fetchone() is None]
            head = self._last(database)
        if of_ledger:
            fresh = [each for each in fresh if each[0] > head.seq]
        taken = []
        for each in fresh:
            seq, error = each[0], error_of(*each, head)
            if error is not None and not of_ledger:
                raise CommitRefused(f"the row {seq} of the audit trail {error}")
            if error is not None:
                log.error("the row %d of this node's audit trail was altered in the fleet's database: %s", seq, error)
            entry = each if error is None else own.get(seq, each)
            if error != _NO_JSON or seq in own:
                taken.append(entry)
                head = Head(seq, entry[2])
        return tuple(taken)

    def stamp(self) -> dict[str, Any]:
        """The time, and whose request is served, as in an entry of this moment."""
        return {"timestamp": self._moment(), **origin().fields()}

    def find(self, selection: Selection, limit: int, offset: int) -> tuple[list[Entry], int]:
        """A page of entries, newest first, and how many there are in all. Raises `StoreError`."""
        where, values = _condition(selection)
        order = "seq DESC" if selection.node is None else "timestamp DESC, seq DESC"
        page = f"SELECT seq, content, hash FROM audit WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"  # noqa: S608 - the condition is ours, values are bound
        count = f"SELECT count(*) FROM audit WHERE {_condition(selection, counting=True)[0]}"  # noqa: S608
        with self._reading() as database:
            rows = database.execute(page, [*values, limit, offset]).fetchall()
            (total,) = database.execute(count, _condition(selection, counting=True)[1]).fetchone()
        return [Entry(seq, json.loads(content), digest) for seq, content, digest in rows], int(total)

    def follow_clock(self, clock: Callable[[], float]) -> None:
        """From now on entries have the time of this clock, in Unix seconds."""
        self._clock = clock

    @property
    def head(self) -> Head:
        """The last row."""
        with self._file.reading() as database:
            return self._last(database)

    @property
    def waiting(self) -> int:
        """The number of entries that were made alone, and go with the next commit."""
        with self._file.reading() as database:
            found = database.execute("SELECT count(*) FROM audit WHERE commit_number > (SELECT revision FROM steps)")
            return int(found.fetchone()[0])

    def after(self, seq: int) -> tuple[Row, ...]:
        """The entries after this one, as they are stored."""
        with self._file.reading() as database:
            return tuple(database.execute("SELECT seq, content, hash FROM audit WHERE seq > ? ORDER BY seq", [seq]))

    def close(self) -> None:
        """End reading."""
        self._reading.close()

    def _written(self, seq: int) -> None:
        self.durable = seq

    def _content(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """All of an entry but its number and its time."""
        return {**_SILENT, **origin().fields(), **shortened(row)}

    def _moment(self) -> str:
        return timestamp_text(self._clock())

    def _last(self, database: sqlite3.Connection) -> Head:
        return max(_read_head(database), self._altered, key=lambda head: head.seq)


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
    try:
        with closing(open_for_reading(data.fleet, alone)) as database:
            return _verify(database, noted)
    except sqlite3.Error as error:
        raise StoreError(f"{data.fleet}: {error}") from error


def _verify(database: sqlite3.Connection, noted: Head | None) -> Head | Broken:
    database.execute("BEGIN")  # a snapshot, while the product may append
    head = Head(0, GENESIS)
    for seq, content, digest in database.execute("SELECT seq, content, hash FROM audit ORDER BY seq"):
        error = error_of(seq, content, digest, head)
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


def error_of(seq: int, content: str, digest: str, before: Head) -> str | None:
    """What is wrong with the entry that is found behind this one."""
    if seq != before.seq + 1:
        return f"follows row {before.seq}: what was between them is missing"
    try:
        row = json.loads(content)
    except (TypeError, ValueError):
        return _NO_JSON
    if not isinstance(row, dict) or row.get("seq") != seq:
        return "its content says that it is another row"
    return None if chain_hash(before.hash, content) == digest else "its content doesn't go with its hash"


def _read_head(database: sqlite3.Connection) -> Head:
    found = database.execute("SELECT seq, hash FROM head WHERE typeof(seq) = 'integer'").fetchone()
    return Head(int(found[0]), str(found[1])) if found else Head(0, GENESIS)


def _last_if_altered(database: sqlite3.Connection) -> Head:
    """When row and head disagree, the trail was altered: that is logged, and later entries leave the gap visible."""
    kept = _read_head(database)
    found = database.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    last = Head(int(found[0]), str(found[1])) if found else Head(0, GENESIS)
    if last == kept:
        return Head(0, GENESIS)
    log.critical("the audit trail was altered: `proxyfleet audit verify` says where")
    return max(last, kept, key=lambda head: head.seq)


def _condition(selection: Selection, counting: bool = False) -> tuple[str, list[Any]]:
    """The SQL condition and its values. `counting` leaves out the cursor, since the total counts all pages."""
    terms: list[str] = ["1"]
    values: list[Any] = []
    for name, value in selection.equal.items():
        if isinstance(value, str) and name == "action" and value.endswith(".*"):
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
    if selection.before is not None and not counting:
        terms.append("(timestamp, ?, seq) < (?, ?, ?)")
        values += [selection.node, *selection.before]
    return " AND ".join(terms), values
