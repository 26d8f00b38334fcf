"""Seals what a node has, or all have, with another key: documents, the history, files.

What is sealed is found by how it looks, wherever it is in a document, and what it is for by trying (`SealedFor`). So
there is no second list of places, and none that a new field could be missing from.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from actors.cluster.database import CHANGE, Database
from api.cluster.shared_ledger import as_of_store
from api.engine.commit import Engine
from api.history.document_changes import rewritten
from api.store import StoreError
from config.files.durable import replace_file
from config.files.paths import DataDir
from config.files.secret_box import SecretBox, SecretBoxError, marks_in

AT_ONCE = 500
"""Changes of revisions that are read and written in one statement."""
BUSY = 5.0
"""Seconds that another thread may have the file of responses."""

_DOCUMENTS = "SELECT collection, id FROM proxyfleet.documents WHERE body::text LIKE %s"
_CHANGES = """
SELECT number, place, before, after FROM proxyfleet.revision_changes
WHERE (number, place) > (%s, %s) ORDER BY number, place LIMIT %s
"""
_REWRITE = """
UPDATE proxyfleet.revision_changes r SET before = decode(c ->> 2, 'hex'), after = decode(c ->> 3, 'hex')
FROM json_array_elements(%s) c WHERE r.number = (c ->> 0)::bigint AND r.place = (c ->> 1)::int
"""
_MOVES = "SELECT node, sealed FROM proxyfleet.moves WHERE sealed LIKE %s"
_REWRITE_MOVE = "UPDATE proxyfleet.moves SET sealed = %s WHERE node = %s AND sealed = %s"
_FORGET_RESPONSES = "DELETE FROM proxyfleet.idempotency WHERE response LIKE %s"

ChangeBodies = tuple[int, int, bytes | None, bytes | None]
"""Number and place of a change in the history, and the bodies before and after."""


class Resealing:
    """From the keys of the marks `previous` to the one of `mark`, which `seal` has, too."""

    def __init__(self, seal: SecretBox, previous: Collection[str], mark: str) -> None:
        self._seal, self._former, self._mark = seal, previous, mark

    def document(self, value: Any) -> Any:
        """A document as JSON has it; the same object where nothing is sealed with a previous key.

        Raises `SecretBoxError` for a secret that can't be opened.
        """
        return _each_text(value, self._text)

    def documents(self, engine: Engine) -> list[tuple[str, str, int, str]]:
        """Those of the replica in which something is to be sealed anew: collection, id, revision, text."""
        with engine.file.reading() as database:
            found = [
                database.execute("SELECT collection, id, revision, body FROM documents WHERE body LIKE ?", [each])
                for each in self._patterns
            ]
            return [row for rows in found for row in rows.fetchall()]

    def documents_of_fleet(self, database: Database) -> set[tuple[str, str]]:
        """Those of the database: collection and id. Raises `StoreError`."""
        with as_of_store():
            found = [database.transaction(_DOCUMENTS, [each], CHANGE) for each in self._patterns]
        return {(collection, identifier) for rows in found for collection, identifier in rows}

    def history_of_fleet(self, database: Database) -> int:
        """Seal that in the database anew, in parts; how many changes that were. Raises `StoreError`."""

        def read(number: int, place: int) -> Sequence[ChangeBodies]:
            with as_of_store():
                return database.transaction(_CHANGES, [number, place, AT_ONCE], CHANGE)

        def write(rows: Sequence[ChangeBodies]) -> None:
            texts = [[number, place, *(each and each.hex() for each in bodies)] for number, place, *bodies in rows]
            with as_of_store():
                database.transaction(_REWRITE, [json.dumps(texts)], CHANGE)

        return self._history(read, write)

    def moves_of_fleet(self, database: Database) -> None:
        """What was left for nodes by a move that is not finished (`api.cluster.moving`). Raises `StoreError`."""
        with as_of_store():
            for pattern in self._patterns:
                for node, sealed in database.transaction(_MOVES, [pattern]):
                    database.transaction(_REWRITE_MOVE, [self._text_of_past(sealed), node, sealed])

    def history_of_replica(self, engine: Engine) -> int:
        """As `history_of_fleet`, of this node."""

        def read(number: int, place: int) -> Sequence[ChangeBodies]:
            with engine.file.reading() as file:
                return file.execute(
                    "SELECT number, place, before, after FROM revision_changes WHERE (number, place) > (?, ?)"
                    " ORDER BY number, place LIMIT ?",
                    [number, place, AT_ONCE],
                ).fetchall()

        def write(rows: Sequence[ChangeBodies]) -> None:
            with engine.file.transaction() as file:
                file.executemany(
                    "UPDATE revision_changes SET before = ?3, after = ?4 WHERE number = ?1 AND place = ?2", rows
                )

        return self._history(read, write)

    def file(self, path: Path) -> None:
        """Seal a file of JSON anew, if it is there. Raises `StoreError`."""
        try:
            content = json.loads(path.read_bytes())
            if (changed := _each_text(content, self._text_of_past)) is not content:
                replace_file(path, json.dumps(changed, indent=1).encode())
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: can't be sealed anew: {error}") from error

    def forget_responses(self, data: DataDir) -> None:
        """Those of this node to requests with an Idempotency-Key: one that is repeated later is a new one.

        Raises `StoreError`.
        """
        file = data.idempotency / "answers.sqlite"
        if not file.exists():
            return
        try:
            with closing(sqlite3.connect(file, timeout=BUSY)) as database, database:
                database.executemany("DELETE FROM answers WHERE sealed LIKE ?", [[each] for each in self._patterns])
        except sqlite3.Error as error:
            raise StoreError(f"{file}: {error}") from error

    def forget_responses_of_fleet(self, database: Database) -> None:
        """As `forget_responses`, in the database."""
        with as_of_store():
            for each in self._patterns:
                database.transaction(_FORGET_RESPONSES, [each])

    @property
    def _patterns(self) -> list[str]:
        return [f"%sealed:1:{each}:%" for each in self._former]

    def _text(self, text: str) -> str:
        return text if marks_in(text).isdisjoint(self._former) else self._seal.sealed_anew(text, self._mark)

    def _text_of_past(self, text: str) -> str:
        """One that can't be opened stays as it is: nothing needs it."""
        try:
            return self._text(text)
        except SecretBoxError:
            return text

    def _history(
        self,
        read: Callable[[int, int], Sequence[ChangeBodies]],
        write: Callable[[Sequence[ChangeBodies]], object],
    ) -> int:
        number, place, count = 0, -1, 0
        while rows := read(number, place):
            number, place = rows[-1][:2]
            found: list[ChangeBodies] = [
                (*row[:2], rewritten(row[2], self._body_of_past), rewritten(row[3], self._body_of_past)) for row in rows
            ]
            changed = [one for one, row in zip(found, rows, strict=True) if one != tuple(row)]
            if changed:
                write(changed)
            count += len(changed)
        return count

    def _body_of_past(self, body: Any) -> Any:
        return _each_text(body, self._text_of_past)


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """`value`, as JSON has it, with each text changed; the same object when none is."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        named = {name: _each_text(each, change) for name, each in value.items()}
        return value if all(named[name] is each for name, each in value.items()) else named
    if isinstance(value, list | tuple):
        found = [_each_text(each, change) for each in value]
        return value if all(each is other for each, other in zip(found, value, strict=True)) else found
    return value
