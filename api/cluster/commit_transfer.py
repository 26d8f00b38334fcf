"""How a commit gets to the database, and back. Nothing of it changes on the way.

**As JSON**, as the functions of the schema take it and give it back:

    {"documents": [[collection, id, body as text or null], …],
     "revisions": [[[number, …, size], [[collection, id, name, fields, before, after], …]], …],
     "audit": [[seq, content, hash], …],
     "levels": [[collection, id, level], …] or null,
     "foreign": [number, …] or null}

On the way there documents have their place in the commit first, and the changes of revisions are a list of their own,
`changes`, each with its revision and its place first. `before` and `after`, which are octets, are base64. `levels` are
those above 1 (`api.engine.levels`), and a program with such a level says so in `level`. `foreign` are numbers of
revisions that no node wrote, and that are not in `revisions`. A body is a text within the text: PostgreSQL reads none
with a NUL otherwise.

**As rows**, by COPY, when it is large (`RowsOnTheWay`): into the tables `staged_…`, from where one function moves them.
All is in the transaction of the commit, so no other one sees these rows, and after it there are none. They can come
before the transaction has the lock of the fleet.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from actors.cluster.database import DatabaseSession
from api.audit.trail import Row
from api.engine.ledger import Commit
from api.engine.levels import FIRST, LEVELS, Levels
from api.history.recorder import RecordedRevision
from api.store import Change, StoreDamaged
from api.store.accounts.staging import ChangeRow
from api.store.rows import text_of

log = logging.getLogger(__name__)

AS_JSON = 2**20
"""Bytes that a commit may have to be sent as JSON."""
WRITE = "SELECT proxyfleet.write_change(%s, %s, %s)"
_MOVE_AUDIT = "SELECT proxyfleet.move_audit(%s, %s)"
_MOVE = "SELECT proxyfleet.move_rows(%s, %s, %s, %s)"

Statement = tuple[str, Sequence[object]]
"""With its values."""
OnDocument = Callable[[str, str, int, str | None], object]
"""Called with collection, id and revision of each document that is read, and with why it can't be, if so."""


def refuse_damaged(_collection: str, _identifier: str, _revision: int, error: str | None) -> None:
    """Raises `StoreDamaged` for one that can't be read."""
    if error is not None:
        raise StoreDamaged(error)


def encoded(commit: Commit, levels: Levels = LEVELS) -> str:
    """A commit as the schema's functions take it."""
    rows: dict[str, list[Any]] = {"level": [levels.level]} if levels.level > FIRST else {}
    for kind, row in _rows(commit, levels):
        rows.setdefault(kind, []).append(row)
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def decoded(number: int, content: str, on_document: OnDocument = refuse_damaged, level: int = LEVELS.level) -> Commit:
    """The inverse, of what `changes_after` gives, without documents above this level.

    Raises `StoreDamaged` for what no node has written.
    """
    parts = json.loads(content)
    for each in parts.get("foreign") or ():
        log.error(
            "the revision %s in the fleet's database is none: its number is later than that of the last one", each
        )
    above = {(collection, key) for collection, key, needed in parts.get("levels") or () if needed > level}
    documents = ((number, *row) for row in parts["documents"] or () if (row[0], row[1]) not in above)
    return Commit(
        number,
        tuple(documents_of(documents, on_document)),
        tuple(
            RecordedRevision(tuple(row), tuple(revision_change(*each) for each in changes or ()))
            for row, changes in parts["revisions"] or ()
        ),
        tuple(audit_entry(*row) for row in parts["audit"] or ()),
    )


def _rows(commit: Commit, levels: Levels) -> Iterator[tuple[str, Any]]:
    for place, each in enumerate(commit.documents):
        if (level := levels.of(each.collection, each.body)) > FIRST:
            yield "levels", (each.collection, each.id, level)
        yield "documents", (place, each.collection, each.id, None if each.body is None else text_of(each.body))
    for revision in commit.revisions:
        yield "revisions", revision.row
        for place, (*texts, before, after) in enumerate(revision.changes):
            yield "changes", (revision.row[0], place, *texts, _text(before), _text(after))
    for entry in commit.audit:
        yield "audit", entry


def documents_of(rows: Iterable[tuple[int, str, str, str | None]], on_document: OnDocument) -> Iterator[Change]:
    """Documents as the database has them: revision, collection, id, and text. Of each `on_document` gets to know."""
    for revision, collection, identifier, text in rows:
        body = None if text is None else json.loads(text)
        if body is None or isinstance(body, dict):
            on_document(collection, identifier, revision, None)
            yield Change(collection, identifier, revision, body)
        else:
            error = f"{collection}/{identifier} is no document in the fleet's database"
            on_document(collection, identifier, revision, error)


def revision_change(collection: str, identifier: str, name: str | None, fields: str, *bodies: str | None) -> ChangeRow:
    """A change of a revision, as the database gives it."""
    before, after = (None if each is None else base64.b64decode(each) for each in bodies)
    return collection, identifier, name, fields, before, after


def audit_entry(seq: int, content: str, digest: str) -> Row:
    """An entry of an audit trail."""
    return seq, content, digest


def _text(octets: bytes | None) -> str | None:
    return None if octets is None else base64.b64encode(octets).decode()


class RowsOnTheWay:
    """The rows of commits, within a transaction: `api.engine.ledger.RowsSent`. Raises `DatabaseError`."""

    def __init__(self, session: DatabaseSession, node: str, levels: Levels, within: float) -> None:
        self.session = session
        self._node, self._levels, self.within = node, levels, within
        self._leveled = {collection for collection, _ in levels.fields}
        self._places = count()
        self.collections: set[str] = set()
        self.documents = self.audited = 0
        """How many documents, and the last entry of the audit trail; 0 for none."""
        self.used: set[tuple[str, str]] = set()
        """Fields that need a level (`Levels.used`)."""

    def add_documents(self, rows: Iterable[tuple[str, str, str | None]]) -> None:
        """See `RowsSent`; a deletion has no text."""
        sent = map(self._document, rows)
        self.documents += self._copy("staged_documents (collection, id, place, level, body)", sent)

    def add_changes(self, rows: Iterable[ChangeRow], number: int | None = None) -> None:
        """See `RowsSent`; or those of the revision with this `number`."""
        columns = "number, place, collection, id, name, fields, before, after"
        self._copy(f"staged_changes ({columns})", ((number, place, *each) for place, each in enumerate(rows)))

    def add_audit(self, rows: Iterable[Row], after: int) -> None:
        """See `RowsSent`."""
        self._add_entries(rows)
        self.session.go_on(_MOVE_AUDIT, [self._node, after], self.within)

    def add_rest(self, commit: Commit) -> Commit:
        """Add what is long of a commit; the rest, which is to be sent as JSON before `moving`."""
        if commit.documents:
            self.add_documents(map(_document, commit.documents))
        for row, changes in commit.revisions:
            if changes:
                self.add_changes(changes, row[0])
        if commit.audit:
            self._add_entries(commit.audit)
        rows = tuple(each._replace(changes=()) for each in commit.revisions)
        return replace(commit, documents=(), revisions=rows, audit=())

    def moving(self, rest: Commit) -> Statement:
        """What makes all of it a part of the commit of which this is the rest."""
        revision = rest.revisions[-1].row[0] if rest.revisions else None
        return _MOVE, [rest.number, self._node, revision, self._levels.level]

    def _document(self, row: tuple[str, str, str | None]) -> tuple[Any, ...]:
        collection, identifier, text = row
        self.collections.add(collection)
        level = FIRST
        if text is not None and collection in self._leveled:
            body = json.loads(text)
            level = self._levels.of(collection, body)
            self.used.update(self._levels.used(collection, body))
        return collection, identifier, next(self._places), level, text

    def _add_entries(self, rows: Iterable[Row]) -> None:
        def noted() -> Iterator[Row]:
            for each in rows:
                self.audited = max(self.audited, each[0])
                yield each

        self._copy("staged_audit (seq, content, hash)", noted())

    def _copy(self, table: str, rows: Iterable[Sequence[Any]]) -> int:
        return self.session.copy(f"proxyfleet.{table}", rows, self.within)


def _document(change: Change) -> tuple[str, str, str | None]:
    return change.collection, change.id, None if change.body is None else text_of(change.body)


def write_within(session: DatabaseSession, node: str, commit: Commit, levels: Levels, within: float) -> None:
    """Write what a commit has, of whatever size, within a transaction that makes it one otherwise."""
    if commit.size <= AS_JSON:
        session.go_on(WRITE, [commit.number, node, encoded(commit, levels)], within)
        return
    rows = RowsOnTheWay(session, node, levels, within)
    rest = rows.add_rest(commit)
    move, values = rows.moving(rest)
    session.go_on(f"{WRITE}; {move}", [commit.number, node, encoded(rest, levels), *values], within)
