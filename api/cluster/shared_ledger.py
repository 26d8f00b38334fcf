"""The ledger of a fleet in its database: take its lock, append a commit, read what a replica lacks. Thread-safe.

    with ledger.begin(after) as lock:      # one round trip: the lock, and what this replica lacks
        for each in lock.missing: …        # adopt it
        …                                  # check, make the commit, sync its audit entries
        lock.append(commit)                # one round trip: it is durable for all nodes
    …                                      # adopt it

A node that waits for anything else within the block holds up all nodes, and loses the lock after some seconds.

A commit is JSON where the functions of the schema take it and give it back, and nothing of it changes on the way:

    {"documents": [[collection, id, body as text or null], …],
     "revisions": [[[number, …, size], [[collection, id, name, fields, before, after], …]], …],
     "audit": [[seq, content, hash], …]}

On the way there documents have their place in the commit first, and the changes of revisions are a list of their own,
`changes`, each with its revision and its place first, so that a large commit goes in parts. `before` and `after`, which
are octets, are base64. A body is a text within the text: PostgreSQL reads none with a NUL otherwise.
"""

from __future__ import annotations

import base64
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any
from uuid import UUID, uuid4

from actors.cluster.database import CHANGE, REPORT, SIGN_IN, Database, DatabaseSession
from actors.cluster.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable, StatementRefused
from actors.histogram import bucket_of
from api.audit.trail import Row
from api.engine.ledger import Commit, LedgerCommit, TooFarBehind
from api.history.document_changes import UNREVISED
from api.history.recorder import RecordedRevision
from api.store import Change, CommitRefused, HistoryPruned, LedgerError, OutcomeUnknown, StoreDamaged
from api.store.accounts.staging import ChangeRow
from api.store.fleet_file import translated
from api.store.rows import text_of

RATE = 4 * 2**20
"""Bytes a second that large commits have to come to: they may take longer than others."""
LONGEST = 600.0
"""Seconds that the largest commits have."""
AT_ONCE = 4 * 2**20
"""Bytes of commits that are read under the lock; a replica that lacks more reads them before."""
PART = 8 * 2**20
"""Characters of JSON that one statement brings, about."""
RETRY = 0.2
"""Seconds between two tries to learn what became of a commit."""

_SILENT = UNREVISED - {"list_states", "verdicts"}
"""Collections whose changes no other node waits for: each notification takes a lock of all databases of the server."""
BEGIN = "SELECT * FROM proxyfleet.begin_change(%s, %s, %s, %s)"
_READ = "SELECT * FROM proxyfleet.changes_after(%s, %s, %s, %s)"
WRITE = "SELECT proxyfleet.write_change(%s, %s, %s)"
_COMMIT = "SELECT proxyfleet.commit_change(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
_DOES_NOT_FOLLOW = "PF001"


class NoFleet(LedgerError):
    """The database has no fleet."""


class OtherFleet(LedgerError):
    """The database has another fleet than this node's."""


class Rewound(LedgerError):
    """The replica's last commit is not in the ledger: the database was restored or failed over to an earlier state."""


class LedgerUnavailable(LedgerError):
    """The database can't be used now, and nothing was changed."""


OnDocument = Callable[[str, str, int, str | None], object]
"""Called with collection, id and revision of each document that is read, and with why it can't be, if so."""


def _refuse_damaged(_collection: str, _identifier: str, _revision: int, error: str | None) -> None:
    if error is not None:
        raise StoreDamaged(error)


@dataclass(frozen=True, slots=True)
class _Page:
    """What a reader lacks, as far as it was read, and the last commit of the ledger."""

    head: int
    stamp: UUID
    audited: int
    rows: tuple[tuple[Any, ...], ...]
    on_document: OnDocument

    @property
    def is_whole(self) -> bool:
        return not self.rows or self.rows[-1][0] == self.head

    @property
    def commits(self) -> Iterator[LedgerCommit]:
        """Raises `StoreDamaged`."""
        return (_commit(each, self.on_document) for each in self.rows)


class FleetLock:
    """The lock of the fleet, for one commit: `missing` are the commits that this replica lacks, up to the last one."""

    def __init__(self, session: DatabaseSession, page: _Page, append: Callable[[FleetLock, Commit], UUID]) -> None:
        self.session = session
        self.missing = tuple(page.commits)
        self.head = page.head
        self.stamp = page.stamp
        """Of the last commit."""
        self.audited = page.audited
        """The last entry of this node's audit trail that the ledger has; a commit brings all that follow."""
        self._append = append
        self.has_appended = False

    def append(self, commit: Commit) -> UUID:
        """Make it the last one, durably; its stamp. The lock is given back.

        Raises `CommitRefused` when it doesn't follow the last one, `OutcomeUnknown`, and `LedgerError`: then it was not
        made.
        """
        with as_of_store():
            stamp = self._append(self, commit)
        self.has_appended = True
        return stamp


class CommitTimes:
    """How long commits of this node took, from asking for the lock on. Changes are made one after the other."""

    def __init__(self) -> None:
        self.histogram: Counter[int] = Counter()
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """One more took so long."""
        self.histogram[bucket_of(seconds)] += 1
        self.seconds += seconds


class SharedLedger:
    """The `api.engine.ledger.Ledger` of one node. Raises `LedgerError`."""

    _find = "SELECT proxyfleet.find_commit(%s)"

    def __init__(self, database: Database, fleet: UUID, node: str, new_stamp: Callable[[], UUID] = uuid4) -> None:
        self._database = database
        self._fleet = fleet
        self.node = node
        self._new_stamp = new_stamp
        self.took = CommitTimes()
        self._refusal = ""
        self._on_document: OnDocument = _refuse_damaged

    def watch(self, on_document: OnDocument) -> None:
        """From now on this gets to know of documents that can't be read, which commits lack then."""
        self._on_document = on_document

    def refuse(self, why: str) -> None:
        """This node makes no commit for this reason; empty: it may."""
        self._refusal = why

    @contextmanager
    def begin(self, after: int, stamp: UUID | None = None, size: int = 0) -> Iterator[FleetLock]:
        """Take the lock for the block, as a replica whose last commit is `after` and has this stamp, if it is known.

        `size` is how many bytes the commit will have, about; large ones have longer. Raises `HistoryPruned`, and
        `DatabaseBusy` when the lock is not free in time.
        """
        if self._refusal:
            raise LedgerUnavailable(self._refusal)
        with as_of_store(), self._database.session() as session:
            began = time.monotonic()
            rows = session.begin(BEGIN, [after, stamp, self.node, AT_ONCE], _seconds(size))
            page = self._page(after, rows)
            if not page.is_whole:
                raise TooFarBehind(f"the commit {after} is {page.head - after} commits behind the last one")
            lock = FleetLock(session, page, self._append)
            yield lock
            if lock.has_appended:
                self.took.add(time.monotonic() - began)

    def changes(self, after: int, stamp: UUID | None = None) -> Iterator[LedgerCommit]:
        """The commits after this one, which the reader has with this stamp. Raises `HistoryPruned`.

        More than come to `AT_ONCE` bytes are in a temporary file meanwhile.
        """
        pages = self._pages(after, stamp)
        page = next(pages)
        if page.is_whole:
            yield from page.commits
            return
        with translated(Path(gettempdir())), TemporaryFile("w+", encoding="utf-8") as file:
            for each in chain([page], pages):
                file.writelines(json.dumps([number, of.hex, *rest]) + "\n" for number, of, *rest in each.rows)
            file.seek(0)
            for line in file:
                number, of, *rest = json.loads(line)
                yield _commit((number, UUID(of), *rest), self._on_document)

    def _pages(self, after: int, stamp: UUID | None) -> Iterator[_Page]:
        """At least one, the last one whole."""
        while True:
            page = self._read(after, stamp)
            yield page
            if page.is_whole:
                return
            after, stamp = page.rows[-1][:2]

    def _read(self, after: int, stamp: UUID | None) -> _Page:
        with as_of_store(), self._database.session() as session:
            rows = session.transaction(_READ, [after, stamp, self.node, AT_ONCE], REPORT)
        return self._page(after, rows)

    def _page(self, after: int, rows: Sequence[Sequence[Any]]) -> _Page:
        if not rows:
            raise NoFleet("the database holds no fleet")
        fleet, head, stamp, pruned_to, followed, audited = rows[0][:6]
        if fleet != self._fleet:
            raise OtherFleet(f"the database holds the fleet {fleet}, and this node is of {self._fleet}")
        if after < pruned_to:
            raise HistoryPruned(pruned_to)
        if not followed:
            raise Rewound(f"the commit {after} of this node is not in the database: its last one is {head}")
        found = tuple(tuple(row[6:]) for row in rows if row[6] is not None)
        numbers = [row[0] for row in found]
        if numbers != [*range(after + 1, after + 1 + len(found))]:
            raise LedgerError(f"commits after {after} are missing in the database: there are {numbers[:10]}")
        return _Page(head, stamp, audited, found, self._on_document)

    def _append(self, lock: FleetLock, commit: Commit) -> UUID:
        stamp, within = self._new_stamp(), _seconds(commit.size)
        *parts, last = encoded_parts(commit)
        for each in parts:
            lock.session.go_on(WRITE, [commit.number, self.node, each], within)
        history = max((each.row[0] for each in commit.revisions), default=0)
        notify = any(each.collection not in _SILENT for each in commit.documents)
        values = [commit.number, stamp, lock.stamp, self.node, last, len(commit.documents), commit.size, history]
        sent = time.monotonic()
        try:
            lock.session.finish(_COMMIT, [*values, notify], within)
        except StatementRefused as error:
            if error.code == _DOES_NOT_FOLLOW:
                raise CommitRefused(str(error)) from error
            raise
        except DatabaseBusy:
            raise
        except DatabaseUnavailable as error:
            if not self._was_made(stamp, sent):
                raise error
        return stamp

    def _was_made(self, stamp: UUID, sent: float) -> bool:
        """What became of a commit whose connection broke. Raises `OutcomeUnknown`.

        Other changes of this node wait meanwhile, reads don't. So this ends with the time that a change has, or after
        another second if that is over: a server that did not respond for so long is not back soon.
        """
        until = max(sent + CHANGE, time.monotonic() + SIGN_IN)
        while True:
            left = until - time.monotonic()
            try:
                with self._database.session(even_if_unavailable=True) as session:
                    ((number,),) = session.transaction(self._find, [stamp], max(left, RETRY))
                    return number is not None
            except DatabaseError as error:
                if left <= RETRY:
                    raise OutcomeUnknown from error
            time.sleep(RETRY)


def _seconds(size: int) -> float:
    """Those that a commit of about so many bytes has."""
    return min(CHANGE + size / RATE, LONGEST)


@contextmanager
def as_of_store() -> Iterator[None]:
    """Errors of the database as those of stores."""
    try:
        yield
    except DatabaseError as error:
        raise LedgerUnavailable(str(error)) from error


def create_fleet(database: Database, fleet: UUID, node: str, head: int, history: int, key_fingerprint: str) -> UUID:
    """Begin a fleet in a database without one, at a commit and a revision; the stamp of that commit.

    Raises `LedgerError` when there is one, and `DatabaseError`.
    """
    with database.session() as session:
        found = session.begin("SELECT id FROM proxyfleet.fleet")
        if found:
            raise LedgerError(f"the database holds the fleet {found[0][0]} already")
        stamp = insert_fleet(session, fleet, node, head, history, key_fingerprint)
        session.finish("SELECT 1")
    return stamp


def insert_fleet(session: DatabaseSession, fleet: UUID, node: str, head: int, history: int, key: str) -> UUID:
    """As `create_fleet`, within a transaction."""
    stamp = uuid4()
    session.go_on(
        "INSERT INTO proxyfleet.fleet (id, head, history, pruned_to, key_fingerprint) VALUES (%s, %s, %s, %s, %s);"
        " INSERT INTO proxyfleet.commits (number, stamp, node, objects, size) VALUES (%s, %s, %s, 0, 0)",
        [fleet, head, history, head, key, head, stamp, node],
    )
    return stamp


# --- a commit as JSON ---


def _commit(row: Sequence[Any], on_document: OnDocument) -> LedgerCommit:
    number, stamp, node, at, content = row
    return LedgerCommit(decoded(number, content, on_document), stamp, node, at)


def encoded_parts(commit: Commit, most: int = PART) -> Iterator[str]:
    """A commit as texts of about `most` characters, at least one."""
    rows: dict[str, list[str]] = {}
    size = 0
    for kind, row in _rows(commit):
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        if size and size + len(text) > most:
            yield _joined(rows)
            rows, size = {}, 0
        rows.setdefault(kind, []).append(text)
        size += len(text)
    yield _joined(rows)


def decoded(number: int, content: str, on_document: OnDocument = _refuse_damaged) -> Commit:
    """The inverse, of what `changes_after` gives. Raises `StoreDamaged` for what no node has written."""
    parts = json.loads(content)
    return Commit(
        number,
        tuple(documents_of(((number, *row) for row in parts["documents"] or ()), on_document)),
        tuple(
            RecordedRevision(tuple(row), tuple(revision_change(*each) for each in changes or ()))
            for row, changes in parts["revisions"] or ()
        ),
        tuple(audit_entry(*row) for row in parts["audit"] or ()),
    )


def _rows(commit: Commit) -> Iterator[tuple[str, Any]]:
    for place, each in enumerate(commit.documents):
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
