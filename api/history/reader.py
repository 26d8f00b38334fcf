"""Reading revisions, on a connection of its own: a long page holds up no change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from api.errors import NotFound
from api.history.document_changes import DocumentChange, Packing
from api.history.recorder import newest_revision
from api.store.fleet_file import ReadingConnection
from config.files.secret_box import SecretBox

_HEAD = "number, timestamp, author, restored, nullif(undone, 0), kinds, created, updated, deleted"
_CHANGE = ("collection", "id", "before", "after", "fields")
_CHANGED = ", ".join(_CHANGE)
_RANGE = "number > ? AND number <= ?"

LATER_AT_ONCE = 20
"""Changes of one document that are read at once; each has it whole, twice."""

Key = tuple[str, str]
"""Collection and id of a document."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A revision without its changes. `author` is as in an audit entry; `counts` are created, updated and deleted.

    `node` is the id of the node that made it, None without a fleet. `kinds` are those of the changed objects.
    """

    number: int
    timestamp: str
    author: dict[str, Any]
    restored: int | None
    undone: int | None
    node: str | None
    kinds: tuple[str, ...]
    counts: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Summary:
    """A change without the bodies."""

    collection: str
    id: str
    name: str | None
    action: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RevisionSelection:
    """Which revisions; None selects by nothing.

    `start` and `end` are ISO 8601 texts, both included; `below` is the number that a cursor has come to.
    """

    kind: str | None = None
    id: str | None = None
    name: str | None = None
    user_id: str | None = None
    username: str | None = None
    start: str | None = None
    end: str | None = None
    below: int | None = None

    def condition(self) -> tuple[str, list[Any]]:
        """As SQL, without `below`."""
        terms = {
            "instr(kinds, ?)": None if self.kind is None else f",{self.kind},",
            "number IN (SELECT number FROM revision_changes WHERE id = ?)": self.id,
            "number IN (SELECT number FROM revision_changes WHERE name = ?)": self.name,
            "user_id = ?": self.user_id,
            "username = ?": self.username,
            "timestamp >= ?": self.start,
            "timestamp <= ?": self.end,
        }
        given = {term: value for term, value in terms.items() if value is not None}
        return " AND ".join(["1", *given]), [*given.values()]


class Reader:
    """Reads. Thread-safe. Raises `StoreError`."""

    def __init__(self, file: Path, seal: SecretBox) -> None:
        self._packing = Packing(seal)
        self._reading = ReadingConnection(file)

    def close(self) -> None:
        """End reading."""
        self._reading.close()

    def page(self, selection: RevisionSelection, limit: int) -> tuple[list[Revision], int]:
        """A page of revisions, newest first, and how many there are in all."""
        where, values = selection.condition()
        below = [] if selection.below is None else [selection.below]
        further = " AND number < ?" if below else ""
        sql = f"SELECT {_HEAD} FROM revisions WHERE {where}{further} ORDER BY number DESC LIMIT ?"  # noqa: S608 - names are ours, values are bound
        with self._reading() as database:
            rows = database.execute(sql, [*values, *below, limit]).fetchall()
            (total,) = database.execute(f"SELECT count(*) FROM revisions WHERE {where}", values).fetchone()  # noqa: S608 - as above
        return [_revision(row) for row in rows], int(total)

    def get(self, number: int) -> Revision | None:
        """One revision."""
        with self._reading() as database:
            row = database.execute(f"SELECT {_HEAD} FROM revisions WHERE number = ?", [number]).fetchone()  # noqa: S608 - as above
        return None if row is None else _revision(row)

    @property
    def newest(self) -> int:
        """The last revision, 0 for none."""
        with self._reading() as database:
            return newest_revision(database)

    def summaries(self, number: int, limit: int, selection: RevisionSelection | None = None) -> list[Summary]:
        """The first changes of a revision; with a selection only those of the object that it names."""
        wanted = {} if selection is None else {"id": selection.id, "name": selection.name}
        only = {f" AND {name} = ?": value for name, value in wanted.items() if value is not None}
        sql = (
            "SELECT collection, id, name, before IS NULL, after IS NULL, fields FROM revision_changes"  # noqa: S608 - as above
            f" WHERE number = ?{''.join(only)} ORDER BY place LIMIT ?"
        )
        with self._reading() as database:
            rows = database.execute(sql, [number, *only.values(), limit]).fetchall()
        return [
            Summary(
                collection, key, name, "create" if new else "delete" if gone else "update", tuple(json.loads(fields))
            )
            for collection, key, name, new, gone, fields in rows
        ]

    def changes(self, number: int, after: int, limit: int) -> list[tuple[int, DocumentChange]]:
        """Changes of a revision behind a place, with their places."""
        sql = f"SELECT place, {_CHANGED} FROM revision_changes WHERE number = ? AND place > ? ORDER BY place LIMIT ?"  # noqa: S608 - as above
        with self._reading() as database:
            rows = database.execute(sql, [number, after, limit]).fetchall()
        return [(place, self._change(row)) for place, *row in rows]

    def keys(self, first: int, last: int, after: Key | None = None, limit: int = -1) -> list[Key]:
        """The documents that revisions after `first` and up to `last` have changed, in order, behind one of them."""
        sql = (
            f"SELECT DISTINCT collection, id FROM revision_changes WHERE {_RANGE} AND (collection, id) > (?, ?)"  # noqa: S608 - as above
            " ORDER BY collection, id LIMIT ?"
        )
        with self._reading() as database:
            return database.execute(sql, [first, last, *(after or ("", "")), limit]).fetchall()

    def of_object(self, identifier: str, first: int, last: int) -> DocumentChange | None:
        """As `between`, by the id alone; None if none of these revisions has changed it."""
        sql = f"SELECT collection FROM revision_changes WHERE {_RANGE} AND id = ? LIMIT 1"  # noqa: S608 - as above
        with self._reading() as database:
            row = database.execute(sql, [first, last, identifier]).fetchone()
        return None if row is None else self.between(first, last, (row[0], identifier))

    def between(self, first: int, last: int, key: Key) -> DocumentChange:
        """A document as it was after the revision `first`, and after `last`; one of those between has changed it.

        Raises `NotFound` if those were deleted meanwhile.
        """
        bodies = []
        with self._reading() as database:
            for column, order in (("before", "ASC"), ("after", "DESC")):
                sql = (
                    f"SELECT {column} FROM revision_changes WHERE {_RANGE} AND collection = ? AND id = ?"  # noqa: S608 - as above
                    f" ORDER BY number {order} LIMIT 1"
                )
                row = database.execute(sql, [first, last, *key]).fetchone()
                if row is None:
                    raise NotFound("The revision")
                bodies.append(row[0])
        before, after = map(self._packing.unpack, bodies)
        return DocumentChange(*key, before, after)

    def later(self, key: Key, number: int) -> Iterator[tuple[Revision, DocumentChange]]:
        """The changes of a document after a revision, newest first."""
        sql = (
            f"SELECT {_HEAD}, {_CHANGED} FROM revision_changes JOIN revisions USING (number)"  # noqa: S608 - as above
            f" WHERE {_RANGE} AND collection = ? AND id = ?"
            " ORDER BY number DESC LIMIT ?"
        )
        last = self.newest
        while True:
            with self._reading() as database:
                rows = database.execute(sql, [number, last, *key, LATER_AT_ONCE]).fetchall()
            for row in rows:
                yield _revision(row[: -len(_CHANGE)]), self._change(row[-len(_CHANGE) :])
            if len(rows) < LATER_AT_ONCE:
                return
            last = rows[-1][0] - 1

    def _change(self, row: Sequence[Any]) -> DocumentChange:
        collection, identifier, before, after, fields = row
        unpack = self._packing.unpack
        return DocumentChange(collection, identifier, unpack(before), unpack(after), tuple(json.loads(fields)))


def _revision(row: Sequence[Any]) -> Revision:
    number, timestamp, author, restored, undone, found, *counts = row
    kinds = tuple(each for each in found.split(",") if each)
    by_whom, of_counts = json.loads(author), (counts[0], counts[1], counts[2])
    node = by_whom.pop("node", None)
    return Revision(number, timestamp, by_whom, restored, undone, node, kinds, of_counts)
