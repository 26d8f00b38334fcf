"""Commits as things, and who has the last word about them.

A commit is written into the file by `api.engine.commit`, whether it was made here or on another node. `Ledger` is the
seam for a fleet of nodes, which have one order of commits.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from actors.sqlite import open_for_reading
from api.audit.trail import Row
from api.history.recorder import STORED, RecordedRevision
from api.store import Change, HistoryPruned
from api.store.accounts.columns import TABLES
from api.store.fleet_file import last_number, translated

_DOCUMENTS = " UNION ALL ".join(
    (
        "SELECT collection, id, NULL FROM deleted WHERE revision = :number",
        "SELECT collection, id, NULL FROM gone WHERE revision = :number",
        *(f"SELECT '{name}', id, body FROM {name} WHERE revision = :number" for name in TABLES),  # noqa: S608 - ours
        "SELECT * FROM (SELECT collection, id, body FROM documents WHERE revision = :number ORDER BY place)",
    )
)
_CHANGES = "SELECT collection, id, name, fields, before, after FROM revision_changes WHERE number = ? ORDER BY place"


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as a thing, that another file can take (`Engine.adopt`).

    It has the documents that it wrote or deleted (which then have no body), in no order, but those that a later commit
    has changed again; and the revisions and the entries of the audit trail that go with it. Those that were made alone
    go with the next commit.
    """

    number: int
    documents: tuple[Change, ...]
    revisions: tuple[RecordedRevision, ...]
    audit: tuple[Row, ...]

    @property
    def size(self) -> int:
        """How many bytes it writes, about."""
        parts = (part for revision in self.revisions for row in revision.changes for part in row)
        texts = (*parts, *(content for _, content, _ in self.audit))
        return sum(len(each or "") for each in texts) + sum(len(str(each.body)) for each in self.documents)


class Ledger(Protocol):
    """Where all nodes of a fleet commit, before their files have it. Its methods raise `StoreError`.

    Without one an installation stands alone: the transaction of the file is all there is.
    """

    def alone(self, after: int) -> AbstractContextManager[Iterable[Commit]]:
        """Within the block no other node commits. It gives the commits that follow the one with this number."""
        ...

    def append(self, commit: Commit) -> None:
        """Make it a commit of all nodes, within `alone`. What it raises rolls the transaction of the file back.

        Called when all of it is written there and could be committed. The file may miss it nevertheless, if the process
        ends at this moment: then `alone` gives it.
        """
        ...


def commits_of(file: Path, after: int) -> Iterator[Commit]:
    """See `Engine.changes`."""
    with translated(file), closing(open_for_reading(file)) as database:
        database.execute("BEGIN")
        (horizon,) = database.execute("SELECT max(steps.horizon, h.horizon) FROM steps, accounts_store AS h").fetchone()
        if after < horizon:
            raise HistoryPruned(horizon)
        for number in range(after + 1, last_number(database) + 1):
            yield commit_of(database, number)


def commit_of(database: sqlite3.Connection, number: int) -> Commit:
    """What is in a file of a commit, also while it is under way."""
    documents = database.execute(_DOCUMENTS, {"number": number}).fetchall()
    revisions = database.execute(
        f"SELECT {STORED} FROM revisions WHERE commit_number = ? ORDER BY number",  # noqa: S608 - names are ours
        [number],
    ).fetchall()
    audit = database.execute("SELECT seq, content, hash FROM audit WHERE commit_number = ? ORDER BY seq", [number])
    return Commit(
        number,
        tuple(Change(name, key, number, None if body is None else json.loads(body)) for name, key, body in documents),
        tuple(RecordedRevision(row, tuple(database.execute(_CHANGES, [row[0]]))) for row in revisions),
        tuple(audit),
    )
