"""TinyDB on rows of SQLite: `TinyDB(storage=RowStorage, …)` whose tables read and write each document alone.

TinyDB's own way to be extended: a `Storage`, and a `Table` for it. A document is a row of `documents`: its table, its
id, its body as JSON, and its revision, which is the number of the change that wrote it. What a query doesn't ask for
isn't read, and what an update doesn't alter isn't written.

A person with a Python prompt opens the file of the fleet with it:

    with open_rows(Path("data/fleet.sqlite")) as database:
        database.table("proxies").search(Query().status == "stopped")
"""

from __future__ import annotations

import json
import marshal
import sqlite3
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, closing
from functools import cache
from pathlib import Path
from typing import Any, cast
from zlib import crc32

from tinydb import TinyDB
from tinydb import table as tinydb_table
from tinydb.storages import Storage

from actors.sqlite import open_for_reading, transaction
from api.store.schema import FORMER, NUMBERED, SCHEMA

SHARED_FIELDS, SHARED_PARTS = 10, 1_000
"""Fields of an object in a body that may be shared, and how many different ones are remembered while a file is read."""
_WITHOUT_REFERENCES = 2
"""The format of `marshal` in which values that are alike have the same bytes."""

Body = dict[str, Any]
_PUT = """
INSERT INTO documents (collection, id, revision, sum, body) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (collection, id) DO UPDATE SET revision = excluded.revision, sum = excluded.sum, body = excluded.body
"""
_NUMBERS = " UNION ALL ".join(f"SELECT max(revision) AS revision FROM {table}" for table in NUMBERED)  # noqa: S608 - ours


class Rows(Mapping[str, Body]):
    """The documents of one table by their ids, each read when it is asked for."""

    def __init__(self, database: sqlite3.Connection, name: str) -> None:
        self._database = database
        self._name = name

    def __getitem__(self, identifier: str) -> Body:
        row = self._database.execute(
            "SELECT body FROM documents WHERE collection = ? AND id = ?", [self._name, identifier]
        ).fetchone()
        if row is None:
            raise KeyError(identifier)
        return cast("Body", json.loads(row[0]))

    def __iter__(self) -> Iterator[str]:
        rows = self._database.execute("SELECT id FROM documents WHERE collection = ? ORDER BY place", [self._name])
        return iter([identifier for (identifier,) in rows])

    def __len__(self) -> int:
        row = self._database.execute("SELECT count(*) FROM documents WHERE collection = ?", [self._name]).fetchone()
        return int(row[0])

    def items(self) -> Any:
        """All of them by one statement."""
        rows = self._database.execute(
            "SELECT id, body FROM documents WHERE collection = ? ORDER BY place", [self._name]
        )
        return [(identifier, json.loads(body)) for identifier, body in rows]


class _Updated(MutableMapping[Any, Body]):
    """The same while an update of TinyDB is under way, which alters what it has got and puts it back or not.

    Keys are of the table's class of ids.
    """

    def __init__(self, rows: Rows, id_class: Callable[[str], Any]) -> None:
        self._rows = rows
        self._id_class = id_class
        self._known: dict[str, tuple[str | None, Body]] = {}
        """Text as it is stored, None for none, and the document as it is now."""
        self.removed: dict[str, None] = {}

    def __getitem__(self, identifier: Any) -> Body:
        key = str(identifier)
        if key in self.removed:
            raise KeyError(identifier)
        if key not in self._known:
            body = self._rows[key]
            self._known[key] = text_of(body), body
        return self._known[key][1]

    def __setitem__(self, identifier: Any, body: Body) -> None:
        key = str(identifier)
        self.removed.pop(key, None)
        self._known[key] = None, body

    def __delitem__(self, identifier: Any) -> None:
        key = str(identifier)
        if key not in self._rows and key not in self._known:
            raise KeyError(identifier)
        self._known.pop(key, None)
        self.removed[key] = None

    def __iter__(self) -> Iterator[Any]:
        stored = dict.fromkeys(each for each in self._rows if each not in self.removed)
        new = [each for each in self._known if each not in stored]
        return iter([self._id_class(each) for each in (*stored, *new)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def altered(self) -> Iterator[tuple[str, str]]:
        """Ids and texts of the documents that are to be written."""
        for key, (before, body) in self._known.items():
            text = text_of(body)
            if text != before:
                yield key, text


class RowStorage(Storage):
    """TinyDB's storage on a connection to the file. Not thread-safe: its owner holds a lock around it.

    `within` is the transaction that each change is made in, which may be open already, and `number` gives its number.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        within: Callable[[], AbstractContextManager[Any]] | None = None,
        number: Callable[[], int] | None = None,
    ) -> None:
        self.database = database
        self._within = within or (lambda: transaction(database))
        self._number = number or self._next_number

    def rows(self, name: str) -> Rows:
        """The documents of a table."""
        return Rows(self.database, name)

    def read(self) -> dict[str, dict[str, Body]]:
        """All tables, as TinyDB has them."""
        names = self.database.execute("SELECT DISTINCT collection FROM documents").fetchall()
        return {name: cast("dict[str, Body]", self.rows(name)) for (name,) in names}

    def write(self, data: Mapping[str, Mapping[str, Any]]) -> None:
        """Make these all tables. Those that are as `read` has given them are left alone."""
        with self._within():
            for name, rows in self.read().items():
                if name not in data:
                    self.change(name, (), rows)
            for name, documents in data.items():
                if not isinstance(documents, Rows):
                    texts = [(str(key), text_of(body)) for key, body in documents.items()]
                    self.change(name, texts, self.rows(name).keys() - dict(texts).keys())

    def update(self, name: str, updater: Callable[[Any], None], id_class: Callable[[str], Any]) -> None:
        """Have TinyDB update a table, and write what it has altered."""
        with self._within():
            updated = _Updated(self.rows(name), id_class)
            updater(updated)
            self.change(name, updated.altered(), updated.removed)

    def change(self, name: str, texts: Any, removed: Any, number: int | None = None) -> None:
        """Write and remove documents of a table, all with this number; None: that of this change."""
        gone, written = [str(each) for each in removed], list(texts)
        if not gone and not written:
            return
        number = self._number() if number is None else number
        for identifier in gone:
            self.database.execute("DELETE FROM documents WHERE collection = ? AND id = ?", [name, identifier])
            if number > 0:  # else `loose` says that it is gone
                known = sum_of(name, identifier, number)
                self.database.execute("REPLACE INTO deleted VALUES (?, ?, ?, ?)", [name, identifier, number, known])
        for identifier, text in written:
            known = sum_of(name, identifier, number, text.encode())
            self.database.execute("DELETE FROM deleted WHERE collection = ? AND id = ?", [name, identifier])
            self.database.execute(_PUT, [name, identifier, number, known, text])

    def _next_number(self) -> int:
        self.database.execute("UPDATE steps SET revision = revision + 1")
        return int(self.database.execute("SELECT revision FROM steps").fetchone()[0])

    def close(self) -> None:
        """Close the connection."""
        self.database.close()


class RowTable(tinydb_table.Table):
    """TinyDB's table for it. Ids are texts."""

    document_id_class = str  # type: ignore[assignment]  # TinyDB's own way to say so
    default_query_cache_capacity = 0  # another process may have changed what was found

    def __init__(self, storage: RowStorage, name: str, cache_size: int = 0, persist_empty: bool = False) -> None:
        super().__init__(storage, name, cache_size, persist_empty)

    def put(self, identifier: str, body: Mapping[str, Any]) -> None:
        """Make this the whole document of the id, whatever there was."""

        def updater(table: Any) -> None:
            table[identifier] = dict(body)

        self._update_table(updater)

    def _read_table(self) -> dict[str, Mapping[str, Any]]:
        return cast("dict[str, Mapping[str, Any]]", cast("RowStorage", self._storage).rows(self.name))

    def _update_table(self, updater: Callable[[dict[int, Mapping[str, Any]]], None]) -> None:
        cast("RowStorage", self._storage).update(self.name, updater, self.document_id_class)
        self.clear_cache()


class RowDatabase(TinyDB):
    """TinyDB whose tables are those of the file."""

    table_class: type[tinydb_table.Table] = RowTable


def open_rows(file: Path) -> TinyDB:
    """The file of a fleet, to be looked at: it can't be changed. Raises `sqlite3.Error`."""
    return RowDatabase(storage=lambda: RowStorage(open_for_reading(file)))


def text_of(body: Mapping[str, Any]) -> str:
    """A document as it is stored."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def sum_of(collection: str, identifier: str, revision: int, body: bytes = b"") -> int:
    """The checksum of a row."""
    return crc32(body, crc32(f"{collection}\0{identifier}\0{revision}\0".encode()))


def damage(database: sqlite3.Connection) -> str:
    """What is wrong with the rows, or with the tables themselves; empty when nothing is."""
    tables = _tables(database)
    if tables not in map(_made_by, (SCHEMA, FORMER)):
        return "it has other tables than this release makes"
    rows = database.execute(
        "SELECT collection, id, revision, sum, CAST(body AS BLOB) FROM documents UNION ALL"
        " SELECT collection, id, revision, sum, x'' FROM deleted"
    )
    for collection, identifier, revision, known, body in rows:
        if not isinstance(body, bytes) or sum_of(collection, identifier, revision, body) != known:
            return f"the row {collection}/{identifier} was altered"
    steps = database.execute("SELECT revision, horizon FROM steps").fetchall()
    (highest,) = database.execute(f"SELECT coalesce(max(revision), 0) FROM ({_NUMBERS})").fetchone()  # noqa: S608 - ours
    if len(steps) != 1 or not all(isinstance(each, int) for each in (*steps[0], highest)):
        return "the number of its last change is gone"
    if not max(highest, steps[0][1]) <= steps[0][0] < 2**62:
        return "the number of its last change is not that of its rows"
    return ""


@cache
def _made_by(schema: str) -> set[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(schema)
        return _tables(fresh)


def _tables(database: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(database.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema"))


def shared_parts() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A hook by which small objects that are alike are one: nearly all of thousands of documents have the defaults."""
    known: dict[bytes, dict[str, Any]] = {}

    def shared(made: dict[str, Any]) -> dict[str, Any]:
        if len(made) > SHARED_FIELDS:
            return made
        key = marshal.dumps(made, _WITHOUT_REFERENCES)
        found = known.get(key)
        if found is None:
            found = made
            if len(known) < SHARED_PARTS:
                known[key] = made
        return found

    return shared
