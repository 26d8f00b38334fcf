"""Everything is read anew: the replica lacks commits that are forgotten, or has some that the database has lost.

The second is a database that was restored, or failed over to a standby that lacks the last commits. What it has now
holds. First its numbers rise above all that the replica has, so that no ETag and no number of a commit is given out
twice; the history goes on without a gap, and the undone revisions are forgotten here. A full node raises them: an edge
node may not, and waits for one.

The database is read in one snapshot, into a file: of documents only digests, and then those that differ; page by page,
so that no more than a page is in memory, also of a revision that has changed very many. They are taken in one step, and
what is the same isn't touched. What was undone, commits and documents, is in a file of its own
beside the event `fleet.rewound`. What only this node has, its entries of the audit trail, is sent again. Loose objects
are in no commit, and stay (`api.cluster.loose`).
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import md5
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid4

from actors.cluster.database import REPORT, DatabaseSession
from actors.cluster.identity import NodeIdentity
from api.cluster.commit_transfer import OnDocument, audit_entry, documents_of, revision_change
from api.cluster.following.audit_trails import AuditSending
from api.cluster.shared_ledger import NoFleet, OtherFleet, SharedLedger, as_of_store
from api.engine.commit import Engine
from api.engine.ledger import Commit, Stamped
from api.engine.loose import LOOSE
from api.history.lost_changes import LostChanges
from api.history.recorder import STORED, RecordedRevision
from api.store import Change, LedgerError
from api.store.accounts.columns import TABLES
from api.store.accounts.staging import ChangeRow
from api.store.fleet_file import translated
from config.files.paths import DataDir
from config.text.formatting import timestamp_text

log = logging.getLogger(__name__)

WITHIN = 60.0
"""Seconds of one statement."""
PAGE = 5_000
"""Rows that are read at once, but of documents and of changes of revisions."""
BODIES = 500
"""Documents that are read at once."""
PART = 4 * 2**20
"""Bytes of changes of revisions that are read at once, but for the last of them."""

# Of tables without statistics it is not known that each page is found by its index.
_HEAD = """
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
SELECT f.id, f.head, c.stamp FROM proxyfleet.fleet f JOIN proxyfleet.commits c ON c.number = f.head
"""
_STAMPS = "SELECT number, stamp FROM proxyfleet.commits WHERE number >= %s ORDER BY number"
_DIGESTS = """
SELECT collection, id, revision, md5(body::text) FROM proxyfleet.documents
WHERE (collection, id) > (%s, %s) AND body IS NOT NULL ORDER BY collection, id LIMIT %s
"""
# What a replica gets that has nothing.
_DOCUMENTS = """
SELECT collection, id, revision, place, body::text FROM proxyfleet.documents
WHERE (collection, id) > (%s, %s) AND body IS NOT NULL AND level <= %s ORDER BY collection, id LIMIT %s
"""
_BODIES = """
SELECT d.collection, d.id, d.revision, d.place, d.body::text
FROM json_array_elements(%s) w JOIN proxyfleet.documents d ON d.collection = w ->> 0 AND d.id = w ->> 1
WHERE d.level <= %s
"""
_REVISIONS = f"""
SELECT {STORED} FROM proxyfleet.revisions
WHERE number > %s AND number <= (SELECT history FROM proxyfleet.fleet) ORDER BY number LIMIT %s
"""  # noqa: S608 - names are ours
_CHANGES = """
SELECT number, place, collection, id, name, fields, encode(before, 'base64'), encode(after, 'base64') FROM (
    SELECT *, sum(size) OVER (ORDER BY number, place ROWS UNBOUNDED PRECEDING) - size AS behind FROM (
        SELECT *, coalesce(octet_length(before), 0) + coalesce(octet_length(after), 0) AS size
        FROM proxyfleet.revision_changes
        WHERE (number, place) > (%s, %s) AND number <= (SELECT history FROM proxyfleet.fleet)
        ORDER BY number, place LIMIT %s
    ) of_page
) of_part WHERE behind < %s ORDER BY number, place
"""
_MADE = "SELECT number FROM proxyfleet.commits WHERE number = %s AND node = %s"
_AUDIT = "SELECT seq, content, hash FROM proxyfleet.audit WHERE node = %s AND seq >= %s ORDER BY seq LIMIT %s"
_SCRATCH = f"""
PRAGMA journal_mode=OFF;
PRAGMA synchronous=OFF;
CREATE TABLE there (
    collection TEXT, id TEXT, revision INTEGER, digest TEXT, PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE TABLE bodies (collection TEXT, id TEXT, revision INTEGER, place INTEGER, body TEXT);
CREATE TABLE revisions ({STORED});
CREATE TABLE changes (
    number INTEGER, place INTEGER, collection TEXT, id TEXT, name TEXT, fields TEXT, before BLOB, after BLOB,
    PRIMARY KEY (number, place)
);
CREATE TABLE audit (seq INTEGER, content TEXT, hash TEXT);
"""
_ADD_BODY = "INSERT INTO bodies VALUES (?, ?, ?, ?, ?)"
_CHANGES_OF = "SELECT collection, id, name, fields, before, after FROM changes WHERE number = ? ORDER BY place"

Publish = Callable[[str, dict[str, Any]], object]


class AwaitsFullNode(LedgerError):
    """The database has lost commits that this edge node has, and no full node has raised the numbers above them."""


def _keep(_collection: str, _identifier: str, _revision: int, error: str | None) -> None:
    """A document that can't be read stays here as it is."""
    if error is not None:
        log.error("%s", error)


@dataclass(frozen=True, slots=True)
class _ChangesOf:
    """The changes of a revision, each read when it is asked for."""

    scratch: sqlite3.Connection
    number: int

    def __iter__(self) -> Iterator[ChangeRow]:
        return self.scratch.execute(_CHANGES_OF, [self.number])


@dataclass(frozen=True, slots=True)
class _Replica:
    """Where it is: its last commit, the stamps that it knows by number, its last revision, and its audit trail's."""

    at: Stamped
    stamps: Mapping[int, str]

    @property
    def is_new(self) -> bool:
        """Whether it has nothing yet."""
        return self.at[0] == 0


class Rereading:
    """Of one node. Called, it reads everything. Raises `StoreError`; then the replica is as it was."""

    def __init__(
        self,
        ledger: SharedLedger,
        identity: NodeIdentity,
        engine: Engine,
        publish: Publish,
        on_document: OnDocument = _keep,
    ) -> None:
        """Documents above the level of the ledger are left as they are (`api.engine.levels`)."""
        self._ledger = ledger
        self._database = ledger.database
        self._identity = identity
        self._engine = engine
        self._publish = publish
        self._on_document = on_document

    def __call__(self) -> None:
        """Do it."""
        with translated(self._engine.file.path), TemporaryDirectory(prefix="reread-") as folder:
            scratch = sqlite3.connect(Path(folder) / "there.sqlite", isolation_level=None, uri=True)
            with closing(scratch):
                scratch.executescript(_SCRATCH)
                scratch.create_function("digest", 1, _digest, deterministic=True)
                scratch.execute("ATTACH ? AS here", [f"{self._engine.file.path.absolute().as_uri()}?mode=ro"])
                self._read(scratch)

    def _read(self, scratch: sqlite3.Connection) -> None:
        replica = self._replica(scratch)
        with as_of_store():
            self._rise_above(replica)
            with self._database.session() as session:
                head, stamp = self._head(session)
                lost = _lost(replica, head, session.go_on(_STAMPS, [min(replica.stamps, default=head)], WITHIN))
                common = min(lost) - 1 if lost else None
                made = session.go_on(_MADE, [self._engine.unsettled_number, self._identity.id], WITHIN)
                scratch.execute("BEGIN")  # else each row is a transaction
                self._read_documents(session, scratch, replica)
                self._read_records(session, scratch, common)
                scratch.execute("COMMIT")
                session.finish("SELECT 1")
        for (text,) in scratch.execute("SELECT body FROM bodies WHERE body IS NOT NULL"):
            self._ledger.check(text)
        undone = [] if common is None else [*_undone(scratch, common, self._engine)]
        revisions = [] if common is None else [*_undone_revisions(scratch, common, self._engine)]
        parts = _parts(scratch, head, self._on_document)
        self._engine.read_anew(replica.at, (head, stamp), parts, common, [number for (number,) in made])
        log.info("everything was read anew, to the commit %d", head)
        if common is not None:
            self._report(common, lost, undone, revisions)
        with as_of_store():
            AuditSending(self._database, self._identity.id, self._engine.trail).send()

    @staticmethod
    def _replica(scratch: sqlite3.Connection) -> _Replica:
        (number,) = scratch.execute("SELECT revision FROM here.steps").fetchone()
        stamps = dict(scratch.execute("SELECT number, stamp FROM here.stamps"))
        known = stamps.get(number)
        return _Replica((number, None if known is None else UUID(known)), stamps)

    def _head(self, session: DatabaseSession) -> tuple[int, UUID]:
        found = session.begin(_HEAD, (), WITHIN)
        if not found:
            raise NoFleet("the database holds no fleet")
        fleet, head, stamp = found[0]
        if fleet != self._identity.fleet:
            raise OtherFleet(f"the database holds the fleet {fleet}, and this node is of {self._identity.fleet}")
        return head, stamp

    def _rise_above(self, replica: _Replica) -> None:
        number, stamp = replica.at
        with self._database.session() as session:
            head, known = self._head(session)
            session.finish("SELECT 1")
            if head < number or (head == number and stamp not in (None, known)):
                if self._identity.role == "edge":
                    raise AwaitsFullNode(
                        f"the database has lost the commit {number} of this node: a full node has to raise"
                        f" its last one, {head}, first"
                    )
                values = [number, uuid4(), self._identity.id]
                session.transaction("SELECT proxyfleet.rise_above(%s, %s, %s)", values, REPORT)

    def _read_documents(self, session: DatabaseSession, scratch: sqlite3.Connection, replica: _Replica) -> None:
        last, level = ("", ""), self._ledger.levels.level
        if replica.is_new:
            while rows := session.go_on(_DOCUMENTS, [*last, level, BODIES], WITHIN):
                scratch.executemany(_ADD_BODY, rows)
                last = rows[-1][:2]
            return
        while rows := session.go_on(_DIGESTS, [*last, PAGE], WITHIN):
            scratch.executemany("INSERT INTO there VALUES (?, ?, ?, ?)", rows)
            last = rows[-1][:2]
        wanted = _different(scratch)
        while part := [*islice(wanted, BODIES)]:
            scratch.executemany(_ADD_BODY, session.go_on(_BODIES, [json.dumps(part), level], WITHIN))

    def _read_records(self, session: DatabaseSession, scratch: sqlite3.Connection, common: int | None) -> None:
        """Revisions that the replica lacks, and entries of this node's audit trail, if they continue that here."""
        where, values = ("", []) if common is None else (" WHERE commit_number <= ?", [common])
        (last,) = scratch.execute(f"SELECT ifnull(max(number), 0) FROM here.revisions{where}", values).fetchone()  # noqa: S608 - ours
        place = last + 1, -1
        while rows := session.go_on(_CHANGES, [*place, PAGE, PART], WITHIN):
            changes = ((number, of_revision, *revision_change(*rest)) for number, of_revision, *rest in rows)
            scratch.executemany("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", changes)
            place = rows[-1][:2]
        while rows := session.go_on(_REVISIONS, [last, PAGE], WITHIN):
            scratch.executemany("INSERT INTO revisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            last = rows[-1][0]
        head = self._engine.trail.head
        rows = session.go_on(_AUDIT, [self._identity.id, head.seq, PAGE], WITHIN)
        known = rows.pop(0) if head.seq and rows else None
        if known is not None and known[2] != head.hash:
            log.error("the database has another audit trail of this node than this machine")
            return
        while rows:
            scratch.executemany("INSERT INTO audit VALUES (?, ?, ?)", rows)
            rows = session.go_on(_AUDIT, [self._identity.id, rows[-1][0] + 1, PAGE], WITHIN)

    def _report(
        self,
        common: int,
        lost: Sequence[int],
        undone: Sequence[Mapping[str, Any]],
        revisions: Sequence[Mapping[str, Any]],
    ) -> None:
        moment, fleet = timestamp_text(self._database.time()), str(self._identity.fleet)
        found = LostChanges(moment, fleet, self._identity.name, common, lost, undone, revisions)
        file = found.save(self._engine.data)
        text = "the database was restored, or failed over: %d commits after %d are undone, with %d documents: %s"
        log.warning(text, len(lost), common, len(undone), file)
        self._publish(
            "fleet.rewound",
            {
                "node_id": self._identity.id, "name": self._identity.name,
                "revision": common, "commits": len(lost), "file": f"cluster/{file.name}",
            },
        )  # fmt: skip


def replaced(data: DataDir, opened: Callable[[], Engine], reread: Callable[[Engine], object]) -> Engine:
    """A new replica in place of one that is damaged or gone, which stays beside it. Raises `StoreError`: as before.

    The audit trail of this node is read back as far as the database has it.
    """
    ends = ("-wal", "-shm", "")  # a file whose log is gone is none, so that goes first
    places = [
        (data.fleet.with_name(data.fleet.name + end), data.fleet.with_name(f"damaged.sqlite{end}")) for end in ends
    ]
    with translated(data.fleet):
        for file, beside in places:
            beside.unlink(missing_ok=True)
            if file.exists():
                file.replace(beside)
    try:
        engine = opened()
        try:
            reread(engine)
        except BaseException:
            engine.close()
            raise
    except BaseException:
        with translated(data.fleet):
            for file, beside in places:
                file.unlink(missing_ok=True)
                if beside.exists():
                    beside.replace(file)
        raise
    log.warning("the replica of this node was damaged or gone, and is read anew; the old file is damaged.sqlite")
    return engine


def _digest(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def _lost(replica: _Replica, head: int, there: Sequence[tuple[int, UUID]]) -> list[int]:
    """The commits of the replica that the database does not have, as far as their stamps are known.

    Of commits before the first of `there` it is only known that they are forgotten.
    """
    stamps = {number: str(stamp) for number, stamp in there}
    first = min(stamps, default=head)
    differ = [each for each, stamp in replica.stamps.items() if each >= first and stamps.get(each) != stamp]
    return sorted(each for each in replica.stamps if differ and each >= min(differ))


def _of_replica() -> Iterator[tuple[str, str]]:
    """Each table of documents in the replica: how its collection is found in `there`, and where."""
    for name in sorted({*TABLES} - LOOSE):
        yield f"t.collection = '{name}'", f"(SELECT '{name}' AS collection, id, revision, body FROM here.{name})"  # noqa: S608 - ours
    others = ", ".join(f"'{each}'" for each in sorted({*TABLES, *LOOSE}))
    which = f"collection NOT IN ({others})"
    yield f"t.{which}", f"(SELECT * FROM here.documents WHERE {which})"  # noqa: S608 - ours


def _different(scratch: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Of the documents that are there, those that the replica lacks or has otherwise."""
    for which, table in _of_replica():
        yield from scratch.execute(
            f"SELECT t.collection, t.id FROM there t LEFT JOIN {table} p ON p.collection = t.collection AND p.id = t.id"  # noqa: S608 - ours
            f" WHERE {which} AND (p.id IS NULL OR p.revision <> t.revision OR digest(p.body) <> t.digest)"
        )


def _gone(scratch: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Those of the replica that are not there."""
    for _, table in _of_replica():
        yield from scratch.execute(
            f"SELECT p.collection, p.id FROM {table} p WHERE NOT EXISTS"  # noqa: S608 - ours
            " (SELECT 1 FROM there t WHERE t.collection = p.collection AND t.id = p.id)"
        )


def _undone(scratch: sqlite3.Connection, common: int, engine: Engine) -> Iterator[dict[str, Any]]:
    """What later commits than `common` have written or deleted, and is not so there; secrets are sealed."""
    gone = set(_gone(scratch))
    for collection, identifier in sorted({*_different(scratch), *gone}):
        here = engine.get(collection, identifier)
        if here is None or here.revision > common:
            body = None if here is None else engine.history.sealed(here.body)
            name = None if body is None else body.get("name") or body.get("username")
            yield {
                "collection": collection, "id": identifier, "name": name,
                "revision": None if here is None else here.revision, "body": body,
            }  # fmt: skip


def _undone_revisions(scratch: sqlite3.Connection, common: int, engine: Engine) -> Iterator[dict[str, Any]]:
    """Who made these commits, when and where, as far as the history has it."""
    rows = scratch.execute(
        'SELECT number, commit_number, "timestamp", author FROM here.revisions WHERE commit_number > ? ORDER BY number',
        [common],
    )
    for number, commit, moment, author in rows:
        origin = json.loads(author)
        node = engine.get("nodes", str(origin.get("node")))
        named = {} if node is None else {"node": node.body["name"]}
        yield {"revision": number, "commit": commit, "timestamp": moment, **origin, **named}


def _parts(scratch: sqlite3.Connection, head: int, on_document: OnDocument) -> Iterator[Commit]:
    """What is to be taken: first what is gone, since names and secrets of that may be others' now."""
    gone = [*_gone(scratch)]
    for start in range(0, len(gone), BODIES):
        yield Commit(head, tuple(Change(*each, head, None) for each in gone[start : start + BODIES]), (), ())
    bodies = scratch.execute("SELECT revision, collection, id, body FROM bodies ORDER BY revision, place")
    while rows := bodies.fetchmany(BODIES):
        yield Commit(head, tuple(documents_of(rows, on_document)), (), ())
    revisions = scratch.execute("SELECT * FROM revisions ORDER BY number")
    while rows := revisions.fetchmany(PAGE):
        yield Commit(head, (), tuple(RecordedRevision(row, _ChangesOf(scratch, row[0])) for row in rows), ())
    entries = scratch.execute("SELECT seq, content, hash FROM audit ORDER BY seq")
    while rows := entries.fetchmany(PAGE):
        yield Commit(head, (), (), tuple(audit_entry(*row) for row in rows))
