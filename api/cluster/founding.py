"""Making a fleet of an installation that stands alone, and an installation of a node again.

**`found_fleet` is whole or has changed nothing.** All is one transaction of the database. What the installation has is
copied as of one moment, while changes go on; then, while no change is made (some milliseconds), what has changed since
follows, and the fleet's first commit: the document of this node. That commit is made as any other, so its transaction
of the file is rolled back when the database refuses, and the file takes it from there when the process is killed.
Numbers, history and audit trail stay: ETags and ids hold on. Deletions are not there, so nothing before is followed.

`data.founding` says which fleet this installation is making. When it is killed between the database and `data.node`,
it stands alone, and the database has a fleet without a node: the next try replaces that, since it is its own. A fleet
of others is never replaced.

**`leave_fleet`** first sends what waits here for the database: sign-ins, credentials, usage, and with the last commit
the audit trail. That commit takes the document of this node out of the fleet; then the file goes that makes it one.
An edge node has a full one remove it (`api.cluster.links.leaving`). What a node has is all that one machine needs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from actors.bus.messages.cluster import FoundFleet
from actors.cluster.database import Database, DatabaseSession
from actors.cluster.errors import DatabaseError
from actors.cluster.identity import NodeIdentity
from actors.sqlite import open_for_reading
from api.cluster.commit_transfer import write_within
from api.cluster.fleet_node import FleetNode
from api.cluster.fleet_usage import unreported
from api.cluster.links.certificates import own_certificate
from api.cluster.links.leaving import be_removed
from api.cluster.migration_runner import ALONE, DEADLINE, migrate
from api.cluster.roles import NodeLogin, begin_roles_within
from api.cluster.shared_ledger import (
    AT_ONCE,
    BEGIN,
    RATE,
    FleetLock,
    SharedLedger,
    as_of_store,
    insert_fleet,
)
from api.engine.commit import Engine
from api.engine.ledger import Commit, RowsSent
from api.engine.levels import FIRST, LEVELS, Levels
from api.engine.loose import LOOSE
from api.engine.one_machine import of_one_machine
from api.history.recorder import STORED, newest_revision
from api.store import LedgerError, NotStored, StoreError
from api.store.accounts.columns import TABLES
from api.store.fleet_file import last_number, translated
from config import OperatorError
from config.files.durable import replace_file, sync
from config.files.paths import DataDir, private_directory
from config.files.secret_box import SecretBox, secret_box_of
from config.model.nodes import (
    COLLECTION,
    INTERNAL_ADDRESS,
    NodeCertificate,
    NodeRecord,
    name_of_machine,
    new_node_id,
    node_address,
    node_name,
    pending_text,
)
from config.model.nodes.tokens import with_port_of

SEND = 5.0
"""Seconds that what waits has to be sent."""
PAUSE = 0.1
_DOCUMENTS = "documents (collection, id, revision, place, body, level)"
_COPIED = [
    (
        _DOCUMENTS,
        "SELECT collection, id, revision, place, body FROM documents"  # noqa: S608 - names are ours
        f" WHERE collection NOT IN ({', '.join(map(repr, sorted(LOOSE)))})",
    ),
    *(
        (_DOCUMENTS, f"SELECT '{each}', id, revision, rowid, body FROM {each}")  # noqa: S608 - ours
        for each in sorted(set(TABLES) - LOOSE)
    ),
    (
        f'revisions ({STORED}, "commit", node)',
        f"SELECT {STORED}, commit_number, :node FROM revisions",  # noqa: S608 - ours
    ),
    (
        "revision_changes (number, place, collection, id, name, fields, before, after)",
        "SELECT number, place, collection, id, name, fields, before, after FROM revision_changes",
    ),
    (
        'audit (node, seq, "commit", content, hash)',
        "SELECT :node, seq, commit_number, content, hash FROM audit WHERE commit_number <= :number",
    ),
]
"""The tables of the database with what they get from the file, but for the level of documents. What needs no order is
sent as if it were new."""


class FoundingRefused(OperatorError):
    """The fleet was not made; the text says why, and what can be done."""


def found_fleet(engine: Engine, asked: FoundFleet, listen: str = "", levels: Levels = LEVELS) -> FleetNode:
    """Make this installation the first node of a new fleet in this database: the node, which `engine` follows.

    The role of the DSN becomes the owner of the schema, and this node gets one of its own, unless there is a
    `shared_role`. An address without a port has that of `listen`. Changes wait for some milliseconds, and nothing else
    does. Raises `FoundingRefused`, `DatabaseError`, `SchemaRefused`, `NodeCertificateError`, and `StoreError`: then it
    still stands alone.
    """
    data, dsn, listen_dsn = engine.data, asked.dsn, asked.listen_dsn
    if data.node.exists():
        raise FoundingRefused("this installation is a node of a fleet already: see `proxyfleet cluster status`")
    seal, login = secret_box_of(data), None if asked.shared_role else NodeLogin(new_node_id(), "full")
    own, own_listen = (dsn, listen_dsn) if login is None else (login.dsn(dsn), listen_dsn and login.dsn(listen_dsn))
    node_id = new_node_id() if login is None else login.node
    node = FleetNode(NodeIdentity(uuid4(), node_id, _name(asked.name), "full", own, own_listen), levels, seal)
    certificate = own_certificate(data)
    try:
        with closing(Database(dsn)) as database:
            database.check()
            _make_room(database, data)
            migrate(database, node.node_id)
            record = NodeRecord(
                id=node.node_id,
                name=node.identity.name,
                addresses=_addresses(asked.address, database, listen),
                certificate=NodeCertificate(fingerprint=certificate.fingerprint, pem=certificate.pem),
                created_at=database.time(),
            )
            _make(engine, seal, node, database, record, login)
    except BaseException:
        node.close()
        raise
    return node


def leave_fleet(node: FleetNode, force: bool) -> Mapping[str, int]:
    """Take this node out of its fleet, and go on alone with everything it has. It is closed then.

    Unless by `force` the fleet has to be reached, and what waits to be sent. Returns what was not sent, as
    `ThisNode.pending` names it. Raises `LedgerError`: then it still is a node; and `StoreError`.
    """
    engine, data = node.engine, node.engine.data
    own = engine.get(COLLECTION, node.node_id)
    left = _sent(data, node)
    if not force and (found := {name: number for name, number in left.items() if name != "audit"}):
        raise LedgerError(f"{pending_text(found)} could not be sent to the fleet within {SEND:g} s")
    if not force and node.identity.role == "edge":
        be_removed(engine)
        left = {}
    elif not force:
        with suppress(NotStored):
            engine.delete(COLLECTION, node.node_id)  # this commit has the rest of the audit trail
        left = {}
        with suppress(DatabaseError):  # it is no node any more
            node.database.transaction("SELECT proxyfleet.remove_node(%s)", [node.node_id])
    node.close()
    engine.stand_alone(lambda: _forget(data))
    if writes := [*of_one_machine(engine.every, own)]:
        engine.commit_unrecorded(writes)
    return left


def _sent(data: DataDir, node: FleetNode) -> dict[str, int]:
    """What still waits when the time is over, or at once without the database: of usage what was counted by now."""
    until, counted = time.monotonic() + SEND, unreported(data.usage).counted
    with suppress(DatabaseError, StoreError):
        node.send()
    while True:
        usage = unreported(data.usage)
        found = {**node.pending(), "usage_bytes": max(0, counted - usage.counted + usage.bytes)}
        found = {name: number for name, number in found.items() if number and name != "usage_seconds"}
        if not found.keys() - {"audit"} or not node.database.is_available or time.monotonic() > until:
            return found
        time.sleep(PAUSE)


def _forget(data: DataDir) -> None:
    data.node.unlink(missing_ok=True)
    sync(data.cluster)


def _name(given: str) -> str:
    """The name of this node: the machine's, unless one is given."""
    try:
        return node_name(given or name_of_machine() or "first")
    except ValueError as error:
        raise FoundingRefused(f"--name: {error}") from None


def _addresses(given: str, database: Database, listen: str) -> dict[str, str]:
    """Where other nodes reach this one: by default at the address from which it reaches the database."""
    with database.session() as session:
        found = given or session.own_address
    try:
        address = node_address(found) if found else ""
    except ValueError as error:
        raise FoundingRefused(f"--address: {error}") from None
    return {INTERNAL_ADDRESS: with_port_of(address, listen)} if address else {}


def _make_room(database: Database, data: DataDir) -> None:
    """Refuse a database that holds a fleet, and remove one that this installation began and is no node of."""
    with database.session() as session:
        ((table,),) = session.begin(f"{ALONE}; SELECT to_regclass('proxyfleet.fleet')")
        if not table:
            return
        found = session.go_on("SELECT id, created_at::timestamp(0)::text FROM proxyfleet.fleet")
        if not found:
            return
        fleet, since = found[0]
        if str(fleet) != _begun(data):
            raise FoundingRefused(
                f"{database.place} holds the fleet {fleet} since {since}: `proxyfleet cluster join` makes this a node"
                " of it; if it is to be no more, `DROP SCHEMA proxyfleet CASCADE` in the database ends it"
            )
        session.finish("DROP SCHEMA proxyfleet CASCADE")


def _begun(data: DataDir) -> str | None:
    try:
        return data.founding.read_text()
    except FileNotFoundError:
        return None


def _make(
    engine: Engine, seal: SecretBox, node: FleetNode, database: Database, record: NodeRecord, login: NodeLogin | None
) -> None:
    data, levels = engine.data, node.levels
    within = DEADLINE + data.fleet.stat().st_size / RATE
    with database.session() as session:
        if found := session.begin(f"{ALONE}; SELECT id FROM proxyfleet.fleet", (), within):  # noqa: S608 - ours
            raise FoundingRefused(f"{database.place} holds the fleet {found[0][0]} since a moment ago")
        copied = _copy(session, engine.file.path, node.node_id, levels, within)
        with engine.alone():
            for commit in engine.changes(copied):
                write_within(session, node.node_id, _ordered(commit), levels, within)
            with engine.file.reading() as file:
                head, history = last_number(file), newest_revision(file)
            stamp = insert_fleet(session, node.identity.fleet, node.node_id, head, history, seal.fingerprint)
            if login is not None:
                begin_roles_within(session, login)
            private_directory(data.cluster)
            replace_file(data.founding, str(node.identity.fleet).encode())

            def save_identity() -> None:
                node.identity.save(data, seal)

            engine.follow_ledger(_FirstTurn(node.identity, database, session, save_identity, levels), stamp)
            try:
                node.opened(engine, all_of_them=True)
                engine.put(COLLECTION, record.model_dump(mode="json"), 0)
            finally:
                if data.node.exists():
                    engine.follow_ledger(node.ledger)
                else:
                    engine.stand_alone()
    data.founding.unlink()


def _copy(session: DatabaseSession, file: Path, node: str, levels: Levels, within: float) -> int:
    """Copy what the file has at this moment; the number of its last commit then."""
    with translated(file), closing(open_for_reading(file)) as database:
        database.execute("BEGIN")
        number = last_number(database)
        values = {"node": node, "number": number}
        for table, rows in _COPIED:
            found = database.execute(rows, values)
            session.copy(f"proxyfleet.{table}", _leveled(found, levels) if table == _DOCUMENTS else found, within)
        return number


def _leveled(documents: Iterable[tuple[Any, ...]], levels: Levels) -> Iterator[tuple[Any, ...]]:
    """Each with its level behind it."""
    collections = {collection for collection, _ in levels.fields}
    for each in documents:
        collection, *_, body = each
        yield (*each, levels.of(collection, json.loads(body)) if collection in collections else FIRST)


def _ordered(commit: Commit) -> Commit:
    return replace(commit, documents=tuple(each for each in commit.documents if each.collection not in LOOSE))


class _FirstTurn(SharedLedger):
    """The ledger of a fleet that is being made: its first commit ends the transaction that makes it."""

    _find = f"{ALONE}; {SharedLedger._find}"
    """Who makes it holds that lock until its transaction ends."""

    def __init__(
        self,
        identity: NodeIdentity,
        database: Database,
        session: DatabaseSession,
        on_commit: Callable[[], None],
        levels: Levels,
    ) -> None:
        super().__init__(database, identity.fleet, identity.id, levels=levels)
        self._session, self._on_commit = session, on_commit

    @contextmanager
    def begin(
        self,
        after: int,
        stamp: UUID | None = None,
        size: int = 0,  # noqa: ARG002
        sent: RowsSent | None = None,  # noqa: ARG002
    ) -> Iterator[FleetLock]:
        """See `SharedLedger.begin`."""
        with as_of_store():
            rows = self._session.go_on(BEGIN, [after, stamp, self.node, AT_ONCE])
            yield FleetLock(self._session, self._page(after, rows), self._append)

    def _append(self, lock: FleetLock, commit: Commit) -> UUID:
        stamp = super()._append(lock, commit)
        self._on_commit()
        return stamp
