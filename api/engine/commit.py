"""The one way to change documents: with entries of the audit trail and a revision, in one transaction.

**A change is never unaudited, and an entry never of a change that was not made**, whenever the process is killed. What
the disk refuses has an entry of its own afterwards (`outcome` `failed`), if that can be written.

The engine knows who changes something from `api.audit.audit_context`. Changes of `UNAUDITED` collections have no entry,
and what is no change of the configuration has no revision (`api.history`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.sqlite import open_for_reading
from api.audit.audit_context import on_behalf_of, origin
from api.audit.masking import difference, field_names
from api.audit.refused import Budget
from api.audit.trail import Row, Trail
from api.engine.effects import Effects
from api.history.document_changes import UNREVISED, DocumentChange, collection_of, is_renewed, kind_of
from api.history.recorder import STORED, RecordedRevision, Recorder
from api.store import (
    Change,
    CommitRefused,
    Document,
    FleetStore,
    HistoryPruned,
    NotStored,
    RevisionConflict,
    Store,
    StoreError,
    Write,
)
from api.store.accounts import Staging
from api.store.accounts.columns import TABLES
from api.store.fleet_file import last_number, translated
from api.store.fleet_store import require_store
from api.store.rows import text_of
from config.files.paths import DataDir
from config.files.secret_box import SecretBox, SecretBoxError, secret_box_of

UNAUDITED = frozenset({"refresh_families", "fetched_upstreams", "secrets"})
"""Collections of sign-ins and their keys, which have entries of their own; and of what is fetched."""

CREDENTIALS = "credentials"
OF_HOLDERS = ("id", "prefix", "expires_at")
"""What entries have of credentials that holders of accounts make and revoke."""
OF_ALL_HOLDERS = 10_000
"""Such entries of all holders in an hour."""
COPIES = 4
"""How often a change has a document: itself, in its entry, and in the revision before and after it."""

_HASHES = frozenset({"password_hash", "renewal_hash"})
_REVOKED = frozenset({"api_keys", CREDENTIALS})
"""Collections whose documents are revoked, not deleted."""


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


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What is recorded of a change: its audit entry, and what it is of a revision, if it is of one."""

    row: dict[str, Any]
    change: DocumentChange | None


class Engine(FleetStore):
    """The `Store` whose changes are recorded. `accounts` and `documents`, its parts, record nothing themselves."""

    def __init__(self, data: DataDir, seal: SecretBox | None) -> None:
        """As `FleetStore`. Without a seal hashes of passwords and keys are not in the history."""
        super().__init__(data)
        self.history = Recorder(self.file, seal)
        try:
            self.trail = Trail(self.file)
        except BaseException:
            super().close()
            raise
        self._of_holders = Budget(in_all=OF_ALL_HOLDERS)
        self.effects = Effects()

    def commit(self, writes: Sequence[Write]) -> int:
        """See `Store.commit`."""
        return self._commit(writes, recorded=True)

    def commit_unrecorded(self, writes: Sequence[Write]) -> int:
        """Commit what has come about by time alone, without entries of the audit trail and without a revision."""
        return self._commit(writes, recorded=False)

    def _commit(self, writes: Sequence[Write], recorded: bool) -> int:
        found: list[_Recorded] = []
        try:
            with self.exclusive(size_of(writes)):
                known = self._known(writes)
                found += self._recorded(writes, known) if recorded else ()
                self._note(writes, known)
                number = super().commit(writes)
                self._record(found)
                return number
        except (RevisionConflict, NotStored):
            raise
        except StoreError as error:
            self._record_failure([{name: each.row[name] for name in ("action", "resource")} for each in found], error)
            raise

    def stage_records(self, staged: Staging) -> None:
        """Before `commit_staged`: make what is recorded of it, which takes long and holds up no other change."""
        for part in staged.writes():
            found = self._recorded(part, self._known(part))
            changes = [each.change for each in found if each.change is not None]
            staged.add_records([self.trail.parts(each.row) for each in found], self.history.rows_of(changes))

    def commit_staged(self, staged: Staging) -> int:
        """Commit accounts that are too many for memory. Raises as `commit`."""

        def record(database: Any) -> None:
            self.trail.append_staged(database)
            self.history.add_staged(database, origin().purpose, self.trail.stamp())

        try:
            return self.accounts.commit_staged(staged, record)
        except RevisionConflict:
            raise
        except StoreError as error:
            self._record_failure([{"action": "account.imported", "details": {"accounts": staged.count}}], error)
            raise

    def changes(self, after: int) -> Iterator[Commit]:
        """The commits after this one, all of one moment, each read when it is asked for.

        Raises `HistoryPruned` when deletions since then are forgotten, and `StoreError`.
        """
        return _commits(self.file.path, after)

    def adopt(self, commit: Commit) -> None:
        """Take a commit that was made elsewhere: the same documents, history and audit trail, with its number.

        Raises `CommitRefused` unless it is the one that follows the last of this file, and `StoreError`.
        """
        with self.exclusive(commit.size):
            following = self.file.number()
            if commit.number != following:
                raise CommitRefused(f"the commit {commit.number} does not follow the last one, {following - 1}")
            self._note(commit.documents, self._known(commit.documents))
            for store, is_its in ((self.documents, False), (self.accounts, True)):
                part = [each for each in commit.documents if (each.collection in TABLES) is is_its]
                if part:
                    store.adopt(part)
            self.trail.adopt(commit.audit)
            self.history.adopt(commit.revisions)

    def close(self) -> None:
        """See `Store.close`."""
        self.trail.close()
        super().close()

    def resource_named(self, params: Mapping[str, str]) -> dict[str, Any] | None:
        """The resource that the first parameter of a path names; `name` is None when there is no such resource."""
        parameter, identifier = next(iter(params.items()), ("", ""))
        if not parameter:
            return None
        collection = collection_of("api_key" if parameter == "key_id" else parameter.removesuffix("_id"))
        found = self.get(collection, identifier) or _named(self, collection, identifier)
        return _resource(collection, found.id if found else identifier, found.body if found else {})

    @contextmanager
    def exclusive(self, size: int = 0) -> Iterator[Any]:
        """Within the block there is no other change; what is committed in it is one commit of about `size` bytes.

        Its effects follow behind the block.
        """
        with self.effects.settled(), self.file.transaction(size) as database:
            yield database

    def _known(self, changes: Sequence[Write | Change]) -> list[Document | None]:
        """What is there before these changes; nothing in collections of which no one asks for it."""
        return [None if each.collection in UNAUDITED else self.get(each.collection, each.id) for each in changes]

    def _note(self, changes: Sequence[Write | Change], known: Sequence[Document | None]) -> None:
        """Have the effects of these changes follow, which this transaction makes."""
        noted = [
            DocumentChange(each.collection, each.id, None if before is None else before.body, each.body)
            for each, before in zip(changes, known, strict=True)
        ]
        self.file.after(lambda: self.effects.note(noted))

    # --- what is recorded ---

    def _record(self, found: Sequence[_Recorded]) -> None:
        """Within the transaction of the changes."""
        if found:
            self.trail.append_all([each.row for each in found])
        changes = [each.change for each in found if each.change is not None]
        if changes:
            self.history.add(self.history.rows_of(changes), origin().purpose, self.trail.stamp())

    def _record_failure(self, rows: Sequence[Mapping[str, Any]], error: StoreError) -> None:
        """That changes were not made. If that can't be written either, the caller's error says enough."""

        def record() -> None:
            with suppress(StoreError):
                self.trail.append_all([{**each, **_failed(error, each)} for each in rows])

        self.file.after_failure(record)

    def _recorded(self, writes: Sequence[Write], known: Sequence[Document | None]) -> list[_Recorded]:
        return [each for each in map(self._recorded_of, writes, known) if each is not None]

    def _recorded_of(self, write: Write, document: Document | None) -> _Recorded | None:
        """What is recorded of a change that is about to be made; None when that is nothing."""
        if write.collection in UNAUDITED:
            return None
        if write.expect is not None and write.expect != (document.revision if document else 0):
            return None  # the store will refuse this
        before = document.body if document else None
        if before is None and write.body is None:
            return None
        if write.collection == CREDENTIALS and (holder := origin().holder) is not None:
            return self._of_holder(holder.account_id, write, before)
        old, new = difference(before, write.body, clear_headers=write.collection == "proxies")
        if not old and not new:
            return None
        fields = field_names(new) if old is not None and new is not None else []
        if fields:
            origin().changes.setdefault(write.id, set()).update(fields)
        resource = _resource(write.collection, write.id, write.body or before or {})
        row = {"action": _action(write.collection, old, new), "resource": resource, "before": old, "after": new}
        if write.collection in UNREVISED or _is_renewal_alone(before, write.body):
            return _Recorded(row, None)
        return _Recorded(row, DocumentChange(write.collection, write.id, before, write.body, tuple(fields)))

    def _of_holder(self, account_id: str, write: Write, before: Mapping[str, Any] | None) -> _Recorded | None:
        """A holder's credential, which may be one of very many."""
        details = self._of_holders.take(account_id)
        if details is None:
            return None
        parts = [each and {name: each[name] for name in OF_HOLDERS} for each in (before, write.body)]
        old, new = difference(*parts)
        resource = {"type": kind_of(CREDENTIALS), "id": write.id, "name": None}
        row = {"action": _action(CREDENTIALS, old, new), "resource": resource, "before": old, "after": new}
        return _Recorded({**row, "details": details or None}, None)


def size_of(writes: Sequence[Write]) -> int:
    """How many bytes these changes write, about."""
    return COPIES * sum(len(text_of(each.body)) for each in writes if each.body is not None)


@contextmanager
def open_engine(data: DataDir, kind: str, operation: str) -> Iterator[Engine]:
    """The engine, for changes by the `command_line` or the `system` without the API.

    The caller holds the lock of the data directory. Raises `StoreError`.
    """
    require_store(data)
    engine = Engine(data, _seal(data, make=kind == "system"))
    try:
        with on_behalf_of(kind, operation):
            yield engine
    finally:
        engine.close()


def _seal(data: DataDir, make: bool) -> SecretBox | None:
    """The seal of the installation; None without its key, which another process may have from systemd."""
    try:
        seal = secret_box_of(data)
    except SecretBoxError as error:
        raise StoreError(str(error)) from error
    return seal if make or seal.is_made else None


def _is_renewal_alone(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
    """Whether an account got a new hash of its password and nothing else, which is no change of the configuration."""
    if before is None or after is None or not is_renewed(before, after):
        return False
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} <= _HASHES


def _failed(error: StoreError, row: Mapping[str, Any]) -> dict[str, Any]:
    return {"outcome": "failed", "details": {**(row.get("details") or {}), "error": type(error).__name__}}


def _action(collection: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> str:
    kind = kind_of(collection)
    if collection == "settings":
        return "settings.updated" if new is not None else "settings.reset"
    if old is None:
        return f"{kind}.created"
    if new is None:
        return f"{kind}.{'revoked' if collection in _REVOKED else 'deleted'}"
    if collection == "proxies" and new.keys() == {"status"}:
        return "proxy.started" if new["status"] == "active" else "proxy.stopped"
    return f"{kind}.updated"


def _resource(collection: str, identifier: str, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": kind_of(collection), "id": identifier, "name": body.get("name") or body.get("username")}


_BY_NAME = frozenset({"lists", "pools", "policies"})
"""Collections whose documents a path names by id or name."""


def _named(store: Store, collection: str, name: str) -> Document | None:
    """The object with this name, of a kind that paths also name by it."""
    return next(iter(store.find(collection, name=name)), None) if collection in _BY_NAME else None


def _commits(file: Path, after: int) -> Iterator[Commit]:
    with translated(file), closing(open_for_reading(file)) as database:
        database.execute("BEGIN")
        (horizon,) = database.execute("SELECT max(steps.horizon, h.horizon) FROM steps, accounts_store AS h").fetchone()
        if after < horizon:
            raise HistoryPruned(horizon)
        for number in range(after + 1, last_number(database) + 1):
            yield _commit(database, number)


def _commit(database: sqlite3.Connection, number: int) -> Commit:
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
