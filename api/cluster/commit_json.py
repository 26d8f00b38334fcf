"""A commit as JSON, as the functions of the schema take it and give it back. Nothing of it changes on the way:

    {"documents": [[collection, id, body as text or null], …],
     "revisions": [[[number, …, size], [[collection, id, name, fields, before, after], …]], …],
     "audit": [[seq, content, hash], …],
     "levels": [[collection, id, level], …] or null,
     "foreign": [number, …] or null}

On the way there documents have their place in the commit first, and the changes of revisions are a list of their own,
`changes`, each with its revision and its place first, so that a large commit goes in parts. `before` and `after`, which
are octets, are base64. `levels` are those above 1 (`api.engine.levels`), and a program with such a level says so in
`level`. `foreign` are numbers of revisions that no node wrote, and that are not in `revisions`. A body is a text within
the text: PostgreSQL reads none with a NUL otherwise.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from api.audit.trail import Row
from api.engine.ledger import Commit
from api.engine.levels import FIRST, LEVELS, Levels
from api.history.recorder import RecordedRevision
from api.store import Change, StoreDamaged
from api.store.accounts.staging import ChangeRow
from api.store.rows import text_of

log = logging.getLogger(__name__)

PART = 8 * 2**20
"""Characters of JSON that one statement brings, about."""

OnDocument = Callable[[str, str, int, str | None], object]
"""Called with collection, id and revision of each document that is read, and with why it can't be, if so."""


def refuse_damaged(_collection: str, _identifier: str, _revision: int, error: str | None) -> None:
    """Raises `StoreDamaged` for one that can't be read."""
    if error is not None:
        raise StoreDamaged(error)


def encoded_parts(commit: Commit, most: int = PART, levels: Levels = LEVELS) -> Iterator[str]:
    """A commit as texts of about `most` characters, at least one."""
    begin = {"level": [str(levels.level)]} if levels.level > FIRST else {}
    rows: dict[str, list[str]] = {**begin}
    size = 0
    for kind, row in _rows(commit, levels):
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        if size and size + len(text) > most:
            yield _joined(rows)
            rows, size = {**begin}, 0
        rows.setdefault(kind, []).append(text)
        size += len(text)
    yield _joined(rows)


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


def _joined(rows: dict[str, list[str]]) -> str:
    lists = (f'"{kind}":[{",".join(texts)}]' for kind, texts in rows.items())
    return f"{{{','.join(lists)}}}"


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
