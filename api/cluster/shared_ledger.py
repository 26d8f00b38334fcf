"""The ledger of a fleet in its database: take its lock, append a commit, read what a replica lacks. Thread-safe.

    with ledger.begin(after) as lock:      # one round trip: the lock, and what this replica lacks
        for each in lock.missing: …        # adopt it
        …                                  # check, make the commit, sync its audit entries
        lock.append(commit)                # one round trip: it is durable for all nodes
    …                                      # adopt it

A node that waits for anything else within the block holds up all nodes, and loses the lock after some seconds.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any
from uuid import UUID, uuid4

from actors.cluster.database import CHANGE, SIGN_IN, Database, DatabaseSession
from actors.cluster.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable, StatementRefused
from actors.histogram import bucket_of
from api.cluster.commit_transfer import AS_JSON, OnDocument, RowsOnTheWay, Statement, decoded, encoded, refuse_damaged
from api.engine.ledger import LARGEST, Commit, LedgerCommit, RowsSent, TooFarBehind
from api.engine.levels import LEVELS, Levels
from api.history.document_changes import UNREVISED
from api.store import CommitRefused, FleetLevel, HistoryPruned, LedgerError, OutcomeUnknown
from api.store.fleet_file import translated

RATE = 4 * 2**20
"""Bytes a second that large commits have to come to: they may take longer than others."""
LONGEST = 600.0
"""Seconds that the largest commits have."""
AT_ONCE = 4 * 2**20
"""Bytes of commits that are read under the lock; a replica that lacks more reads them before."""
RETRY = 0.2
"""Seconds between two tries to learn what became of a commit."""

_SILENT = UNREVISED - {"list_states", "verdicts"}
"""Collections whose changes no other node waits for: each notification takes a lock of all databases of the server."""
BEGIN = "SELECT * FROM proxyfleet.begin_change(%s, %s, %s, %s)"
_READ = "SELECT * FROM proxyfleet.changes_after(%s, %s, %s, %s)"
_COMMIT = "SELECT proxyfleet.commit_change(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
_DOES_NOT_FOLLOW, _NODES_BELOW, _UNKNOWN_DOCUMENT = "PF001", "PF010", "PF011"


class NoFleet(LedgerError):
    """The database has no fleet."""


class OtherFleet(LedgerError):
    """The database has another fleet than this node's."""


class Rewound(LedgerError):
    """The replica's last commit is not in the ledger: the database was restored or failed over to an earlier state. Or
    one that follows is missing, which someone has removed."""


class LedgerUnavailable(LedgerError):
    """The database can't be used now, and nothing was changed."""


@dataclass(frozen=True, slots=True)
class _Page:
    """What a reader lacks, as far as it was read, and the last commit of the ledger."""

    after: int
    head: int
    stamp: UUID
    audited: int
    rows: tuple[tuple[Any, ...], ...]
    read: Callable[[tuple[Any, ...]], LedgerCommit]

    @property
    def is_whole(self) -> bool:
        return (self.rows[-1][0] if self.rows else self.after) >= self.head

    @property
    def commits(self) -> Iterator[LedgerCommit]:
        """Raises `StoreDamaged`."""
        return map(self.read, self.rows)


class FleetLock:
    """The lock of the fleet, for one commit: `missing` are the commits that this replica lacks, up to the last one."""

    def __init__(
        self,
        session: DatabaseSession,
        page: _Page,
        append: Callable[[FleetLock, Commit], UUID],
        sent: RowsOnTheWay | None = None,
    ) -> None:
        self.session = session
        self.sent = sent
        """What came before the lock."""
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


class _WithCommits(threading.local):
    """What the commits of a thread have with them: statements, each with its values."""

    with_next: tuple[Statement, ...] = ()


class SharedLedger:
    """The `api.engine.ledger.Ledger` of one node. Raises `LedgerError`."""

    _find = "SELECT proxyfleet.find_commit(%s)"

    def __init__(
        self,
        database: Database,
        fleet: UUID,
        node: str,
        new_stamp: Callable[[], UUID] = uuid4,
        levels: Levels = LEVELS,
    ) -> None:
        self.database = database
        self._fleet = fleet
        self.node = node
        self._new_stamp = new_stamp
        self.levels = levels
        self.took = CommitTimes()
        self._refusal = ""
        self.awaited = ""
        """What changes of this node wait for."""
        self._may_go_on = threading.Condition()
        self._on_document: OnDocument = refuse_damaged
        self._on_audited: Callable[[int], object] = lambda _last: None
        self._check: Callable[[str], object] = lambda _content: None
        self._thread = _WithCommits()

    def check_by(self, check: Callable[[str], object]) -> None:
        """This then gets the text of all that is read, before it is taken. It may raise `LedgerError`."""
        self._check = check

    def check(self, text: str) -> None:
        """Whether this may be taken, which was read. Raises `LedgerError`."""
        self._check(text)

    @contextmanager
    def with_next(self, statement: str, values: Sequence[object]) -> Iterator[None]:
        """Within the block a commit of this thread has this statement in its transaction, too."""
        before = self._thread.with_next
        self._thread.with_next = (*before, (statement, values))
        try:
            yield
        finally:
            self._thread.with_next = before

    def subscribe_documents(self, on_document: OnDocument) -> None:
        """From now on this gets to know of documents that can't be read, which commits lack then."""
        self._on_document = on_document

    def subscribe_audit(self, on_audited: Callable[[int], object]) -> None:
        """From now on this gets to know the last entry of this node's audit trail that the database has."""
        self._on_audited = on_audited

    def refuse(self, why: str) -> None:
        """This node makes no commit for this reason; empty: it may."""
        self._refusal = why

    def wait(self, why: str) -> None:
        """Changes of this node wait, and are refused for this reason when that takes long; empty: they go on."""
        with self._may_go_on:
            self.awaited = why
            self._may_go_on.notify_all()

    @contextmanager
    def begin(
        self, after: int, stamp: UUID | None = None, size: int = 0, sent: RowsSent | None = None
    ) -> Iterator[FleetLock]:
        """Take the lock for the block, as a replica whose last commit is `after` and has this stamp, if it is known.

        `size` is how many bytes the commit will have, about; large ones have longer. It is in the transaction of what
        was `sent`. Raises `HistoryPruned`, and `DatabaseBusy` when the lock is not free in time.
        """
        assert sent is None or isinstance(sent, RowsOnTheWay)
        self._require_permission()
        with as_of_store(), self.database.session() if sent is None else nullcontext(sent.session) as session:
            began, values = time.monotonic(), [after, stamp, self.node, AT_ONCE]
            rows = (session.begin if sent is None else session.go_on_within)(BEGIN, values, _seconds(size))
            page = self._page(after, rows, is_own=sent is None)
            if not page.is_whole:
                raise TooFarBehind(f"the commit {after} is {page.head - after} commits behind the last one")
            lock = FleetLock(session, page, self._append, sent)
            yield lock
            if lock.has_appended:
                self.took.add(time.monotonic() - began)

    @contextmanager
    def sending(self, size: int) -> Iterator[RowsOnTheWay]:
        """See `api.engine.ledger.Ledger`."""
        self._require_permission()
        with as_of_store(), self.database.session() as session:
            session.begin("SELECT 1", (), LONGEST)  # others don't wait for it before it has the lock
            yield RowsOnTheWay(session, self.node, self.levels, _seconds(size))

    def _require_permission(self) -> None:
        """Raises `LedgerUnavailable` when this node makes no commit."""
        if self._refusal:
            raise LedgerUnavailable(self._refusal)
        with self._may_go_on:
            if not self._may_go_on.wait_for(lambda: not self.awaited, CHANGE):
                raise LedgerUnavailable(self.awaited)

    def changes(self, after: int, stamp: UUID | None = None) -> Iterator[LedgerCommit]:
        """The commits after this one, which the reader has with this stamp.

        Raises `HistoryPruned`; and `TooFarBehind` at a commit that is too large to be read as one.
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
                yield self._commit((number, UUID(of), *rest))

    def _pages(self, after: int, stamp: UUID | None) -> Iterator[_Page]:
        """At least one, the last one whole."""
        while True:
            page = self._read(after, stamp)
            if not page.rows and not page.is_whole:
                raise TooFarBehind(f"the commit {after + 1} is too large for one text: all is read anew in pages")
            yield page
            if page.is_whole:
                return
            after, stamp = page.rows[-1][:2]

    def _read(self, after: int, stamp: UUID | None) -> _Page:
        with as_of_store():
            rows = self.database.transaction(_READ, [after, stamp, self.node, AT_ONCE], _seconds(LARGEST))
        return self._page(after, rows)

    def _page(self, after: int, rows: Sequence[Sequence[Any]], is_own: bool = True) -> _Page:
        """Within a transaction that `is_own` no entry of the audit trail is there that may be taken back."""
        if not rows:
            raise NoFleet("the database holds no fleet")
        fleet, head, stamp, pruned_to, followed, audited = rows[0][:6]
        if fleet != self._fleet:
            raise OtherFleet(f"the database holds the fleet {fleet}, and this node is of {self._fleet}")
        if after < pruned_to:
            raise HistoryPruned(pruned_to)
        if not followed:
            raise Rewound(f"the commit {after} of this node is not in the database: its last one is {head}")
        if is_own:
            self._on_audited(audited)
        found = tuple(tuple(row[6:]) for row in rows if row[6] is not None)
        numbers = [row[0] for row in found]
        if numbers != [*range(after + 1, after + 1 + len(found))]:
            raise Rewound(f"commits after {after} are missing in the database: there are {numbers[:10]}")
        for row in found:
            self._check(row[-1])
        return _Page(after, head, stamp, audited, found, self._commit)

    def _commit(self, row: Sequence[Any]) -> LedgerCommit:
        number, stamp, node, at, content = row
        return LedgerCommit(decoded(number, content, self._on_document, self.levels.level), stamp, node, at)

    def _append(self, lock: FleetLock, commit: Commit) -> UUID:
        stamp, rows, rest = self._new_stamp(), lock.sent, commit
        size = commit.size if rows is None else LARGEST + 1  # so that it is read in pages
        within = _seconds(size) if rows is None else rows.within
        if rows is None and size > AS_JSON:
            rows = RowsOnTheWay(lock.session, self.node, self.levels, within)
        moves: list[Statement] = []
        if rows is not None:
            rest = rows.add_rest(commit)
            moves = [rows.moving(rest)]
        collections = {each.collection for each in rest.documents} if rows is None else rows.collections
        values = [
            commit.number,
            stamp,
            lock.stamp,
            self.node,
            encoded(rest, self.levels),
            len(rest.documents) if rows is None else rows.documents,
            size,
            max((each.row[0] for each in commit.revisions), default=0),
            not collections <= _SILENT,
        ]
        statements = [*self._thread.with_next, (_COMMIT, values), *moves]
        sent = time.monotonic()
        try:
            with self._refusals(commit, rows):
                lock.session.finish(
                    "; ".join(each for each, _ in statements),
                    [*chain.from_iterable(of for _, of in statements)],
                    within,
                )
        except DatabaseBusy:
            raise
        except DatabaseUnavailable as error:
            if not self._was_made(stamp, sent):
                raise error
        if audited := max((seq for seq, *_ in commit.audit), default=0) if rows is None else rows.audited:
            self._on_audited(audited)
        return stamp

    @contextmanager
    def _refusals(self, commit: Commit, rows: RowsOnTheWay | None) -> Iterator[None]:
        """What the functions of the schema refuse."""
        try:
            yield
        except StatementRefused as error:
            if error.code == _DOES_NOT_FOLLOW:
                raise CommitRefused(str(error)) from error
            what = str(error).rpartition(": ")[2]
            if error.code == _NODES_BELOW:
                used = {each for one in commit.documents for each in self.levels.used(one.collection, one.body)}
                used |= set() if rows is None else rows.used
                fields = sorted(f"{collection}.{path}" for collection, path in used)
                level = max(self.levels.fields[each].level for each in used)
                nodes = what.split(",")
                text = f"{', '.join(fields)} can be set when all nodes have this release: {', '.join(nodes)} has not"
                raise FleetLevel(text, level, nodes, fields) from error
            if error.code == _UNKNOWN_DOCUMENT:
                text = f"{what} was written by a newer release, which other nodes have: change it at one of them"
                raise FleetLevel(text, self.levels.level) from error
            raise

    def _was_made(self, stamp: UUID, sent: float) -> bool:
        """What became of a commit whose connection broke. Raises `OutcomeUnknown`.

        Other changes of this node wait meanwhile, reads don't. So this ends with the time that a change has, or after
        another second if that is over: a server that did not respond for so long is not back soon.
        """
        until = max(sent + CHANGE, time.monotonic() + SIGN_IN)
        while True:
            left = until - time.monotonic()
            try:
                with self.database.session(even_if_unavailable=True) as session:
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


def insert_fleet(session: DatabaseSession, fleet: UUID, node: str, head: int, history: int, key: str) -> UUID:
    """Within a transaction: begin a fleet in a database without one, at a commit and a revision, which has this `key`
    (`SecretBox.fingerprint`); the stamp of that commit."""
    stamp = uuid4()
    session.go_on(
        "INSERT INTO proxyfleet.fleet (id, head, history, pruned_to, key_fingerprint) VALUES (%s, %s, %s, %s, %s);"
        " INSERT INTO proxyfleet.commits (number, stamp, node, objects, size) VALUES (%s, %s, %s, 0, 0)",
        [fleet, head, history, head, key, head, stamp, node],
    )
    return stamp
