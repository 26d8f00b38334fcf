"""Commits as things, and who has the last word about them.

A commit is written into the file by `api.engine.commit`, whether it was made here or on another node. `Ledger` is the
seam for a fleet of nodes, which have one order of commits.

Each node has an audit trail of its own, and its commits bring all entries to the ledger that it lacks. The last ones
are on the disk before (`UnsettledEntries`): when the node is killed before its file has the commit, or does not learn
what became of it, its next entries follow the same ones that the ledger has.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import UUID

from actors.sqlite import open_for_reading
from api.audit.trail import Row
from api.history.recorder import STORED, RecordedRevision
from api.store import Change, HistoryPruned, StoreError
from api.store.accounts.columns import TABLES
from api.store.accounts.staging import ChangeRow
from api.store.fleet_file import last_number, translated
from config.files.durable import new_file, replace_file

_DOCUMENTS = " UNION ALL ".join(
    (
        "SELECT collection, id, NULL FROM deleted WHERE revision = :number",
        "SELECT collection, id, NULL FROM gone WHERE revision = :number",
        *(f"SELECT '{name}', id, body FROM {name} WHERE revision = :number" for name in TABLES),  # noqa: S608 - ours
        "SELECT * FROM (SELECT collection, id, body FROM documents WHERE revision = :number ORDER BY place)",
    )
)
LARGEST = 16 * 2**20
"""Bytes of a commit that is read as one; larger ones are read in pages, and not in the order of commits."""
STAMPS = 10_000
"""Of so many commits a file has the stamps: when the ledger has lost the last ones, that says which."""
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


class TooFarBehind(StoreError):
    """The file lacks more than is read while no other node commits: take `Ledger.changes` first."""


@dataclass(frozen=True, slots=True)
class LedgerCommit:
    """A commit as the ledger has it: with its stamp, the id of the node that made it, and when, in Unix time.

    Its entries of the audit trail are there if the reader has made it, and not else.
    """

    commit: Commit
    stamp: UUID
    node: str
    at: float


class RowsSent(Protocol):
    """Rows of one commit that the ledger gets before the turn, since they are very many (`Ledger.sending`).

    They are a part of what the turn appends that has begun with them. Other nodes read such a commit in pages, not as a
    `Commit`.
    """

    def add_documents(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Collection, id and text of documents."""
        ...

    def add_changes(self, rows: Iterable[ChangeRow]) -> None:
        """Changes of the one revision that the commit has."""
        ...

    def add_audit(self, rows: Iterable[Row], after: int) -> None:
        """The next entries of this node's audit trail, of a file whose last commit is `after`."""
        ...


class LedgerTurn(Protocol):
    """The turn of one node, for one commit. `missing` are the commits that its file lacks, up to the last one."""

    @property
    def missing(self) -> Sequence[LedgerCommit]:
        """See the class."""
        ...

    @property
    def audited(self) -> int:
        """The last entry of this node's audit trail that the ledger has; a commit brings all that follow."""
        ...

    def append(self, commit: Commit) -> UUID:
        """Make it a commit of all nodes, durably; its stamp. What it raises rolls the transaction of the file back.

        Called when all of it is written there and could be committed, but for what was sent as rows. The file may miss
        it nevertheless, if the process ends at this moment: then it is `missing` in the next turn. Raises
        `OutcomeUnknown`, and other `StoreError` when it was not made.
        """
        ...


class Ledger(Protocol):
    """Where all nodes of a fleet commit, before their files have it. Its methods raise `StoreError`.

    Both take the last commit of the file and its stamp, if that is known, and refuse a file that has others than the
    ledger. Without one an installation stands alone: the transaction of the file is all there is.
    """

    @property
    def node(self) -> str:
        """The id of this node."""
        ...

    def begin(
        self, after: int, stamp: UUID | None, size: int = 0, sent: RowsSent | None = None
    ) -> AbstractContextManager[LedgerTurn]:
        """Within the block no other node commits; this one writes about `size` bytes, with what was `sent` before.

        Raises `TooFarBehind`.
        """
        ...

    def sending(self, size: int) -> AbstractContextManager[RowsSent]:
        """Send rows of a commit of about `size` bytes before its turn, which begins within the block."""
        ...

    def changes(self, after: int, stamp: UUID | None) -> Iterator[LedgerCommit]:
        """The commits after this one. Only with the last of them they are a state that was there.

        What is to be waited for is when the first one is asked for.
        """
        ...


class UnsettledEntries:
    """The new entries of a commit that goes to the ledger, in a file until it is known what has become of it.

    `number` is that of the commit, 0 for none. Very many are in a file of their own before there is a number.
    """

    def __init__(self, path: Path) -> None:
        """Raises `StoreError`."""
        self._path, self._many = path, path.with_name(f"{path.name}.many")
        self._prepared: tuple[Row, ...] = ()
        self.number = 0
        self.entries: tuple[Row, ...] = ()
        with translated(path):
            if not path.exists():
                self._many.unlink(missing_ok=True)
                return
            self.number, rows = json.loads(path.read_bytes())
            if rows is None:
                rows = map(json.loads, self._many.read_bytes().splitlines())
            self.entries = tuple((seq, content, digest) for seq, content, digest in rows)

    def prepare(self, entries: Sequence[Row]) -> None:
        """These are given to the ledger with the commit that begins next. Raises `StoreError`."""
        with translated(self._path):
            self._many.unlink(missing_ok=True)
            with new_file(self._many) as file:
                file.writelines(json.dumps(each).encode() + b"\n" for each in entries)
        self._prepared = tuple(entries)

    def begin(self, number: int, entries: Sequence[Row] | None = None) -> None:
        """These, or those that were prepared, are given to the ledger now. Raises `StoreError`."""
        with translated(self._path):
            replace_file(self._path, json.dumps([number, entries]).encode())
        self.number, self.entries = number, self._prepared if entries is None else tuple(entries)

    def end(self) -> None:
        """It is known. A file that stays is of a commit that is made, as the next start sees."""
        self.number, self.entries, self._prepared = 0, (), ()
        for each in (self._path, self._many):
            with suppress(OSError):
                each.unlink(missing_ok=True)


Stamped = tuple[int, UUID | None]
"""The number of a commit, and its stamp in the ledger, if that is known."""


def stamped(database: sqlite3.Connection) -> Stamped:
    """The number of the last commit of a file, and its stamp in the ledger, if it is from there."""
    number = last_number(database)
    found = database.execute("SELECT stamp FROM stamps WHERE number = ?", [number]).fetchone()
    return number, None if found is None else UUID(found[0])


def note_stamp(database: sqlite3.Connection, number: int, stamp: UUID) -> None:
    """A commit has this stamp, within its transaction."""
    note_stamps(database, {number: stamp})


def note_stamps(database: sqlite3.Connection, stamps: Mapping[int, UUID]) -> None:
    """The same of commits that are taken in one transaction; the last ones are remembered."""
    last = sorted(stamps.items())[-STAMPS:]
    if last:
        database.executemany("REPLACE INTO stamps VALUES (?, ?)", [(number, str(stamp)) for number, stamp in last])
        database.execute("DELETE FROM stamps WHERE number <= ?", [last[-1][0] - STAMPS])


def forget_stamp(database: sqlite3.Connection) -> None:
    """There is no ledger any more, within a transaction; nor a database for what needs no order."""
    database.execute("DELETE FROM stamps")
    database.execute("DELETE FROM loose")
    database.execute("DELETE FROM loose_heads WHERE node <> ''")


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
