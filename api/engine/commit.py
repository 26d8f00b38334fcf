"""The one way to change documents: with entries of the audit trail and a revision, in one transaction.

**A change is never unaudited, and an entry never of a change that was not made**, whenever the process is killed. What
the disk refuses has an entry of its own afterwards (`outcome` `failed`), if that can be written.

The engine knows who changes something from `api.audit.audit_context`. Changes of `UNAUDITED` collections have no entry,
and what is no change of the configuration has no revision (`api.history`).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from api.audit.audit_context import on_behalf_of, origin
from api.audit.masking import difference, field_names
from api.audit.refused import Budget
from api.audit.trail import Row
from api.engine.ledger import LARGEST, Commit, Ledger, LedgerTurn, RowsSent, TooFarBehind, commit_of, note_stamp
from api.engine.loose import LOOSE
from api.engine.replica import ReplicaStore, failed
from api.history.document_changes import UNREVISED, DocumentChange, collection_of, is_renewed, kind_of
from api.history.recorder import RecordedRevision
from api.store import (
    Document,
    FleetLevel,
    HistoryPruned,
    LedgerError,
    NotStored,
    OutcomeUnknown,
    RevisionConflict,
    Store,
    StoreError,
    Write,
)
from api.store.accounts import Staging
from api.store.fleet_store import require_store
from api.store.rows import text_of
from config.files.paths import DataDir
from config.files.secret_box import SecretBox, sealing_as, secret_box_of

UNAUDITED = frozenset(
    {"refresh_families", "account_sessions", "fetched_upstreams", "list_states", "verdicts", "secrets"}
)
"""Collections of sign-ins and their keys, which have entries of their own; and of what is fetched."""

CREDENTIALS = "credentials"
OF_HOLDERS = ("id", "prefix", "expires_at")
"""What entries have of credentials that holders of accounts make and revoke."""
OF_ALL_HOLDERS = 10_000
"""Such entries of all holders in an hour."""
COPIES = 4
"""How often a change has a document: itself, in its entry, and in the revision before and after it."""

_HASHES = frozenset({"password_hash", "renewal_hash"})
_REVOKED = frozenset({"api_keys", CREDENTIALS, "node_tokens"})
"""Collections whose documents are revoked, not deleted."""


class _ChecksOfThread(threading.local):
    """What a thread checks within its turn (`Engine.rechecked`)."""

    checks: tuple[Callable[[], object], ...] = ()


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What is recorded of a change: its audit entry, and what it is of a revision, if it is of one."""

    row: dict[str, Any]
    change: DocumentChange | None


class Engine(ReplicaStore):
    """The `Store` whose changes are recorded. `accounts` and `documents`, its parts, record nothing themselves."""

    def __init__(self, data: DataDir, seal: SecretBox | None, ledger: Ledger | None = None) -> None:
        """See `ReplicaStore`."""
        super().__init__(data, self._confirm, seal, ledger)
        self.data = data
        self._turn: LedgerTurn | None = None
        self._held = ExitStack()
        """What the turn holds."""
        self._thread = _ChecksOfThread()
        self._of_holders = Budget(in_all=OF_ALL_HOLDERS)

    def commit(self, writes: Sequence[Write]) -> int:
        """See `Store.commit`."""
        return self._commit(writes, recorded=True)

    def commit_unrecorded(self, writes: Sequence[Write]) -> int:
        """Commit what has come about by time alone, without entries of the audit trail and without a revision."""
        return self._commit(writes, recorded=False)

    def _commit(self, writes: Sequence[Write], recorded: bool) -> int:
        found: list[_Recorded] = []
        if self.loose.are_shared and writes and all(each.collection in LOOSE for each in writes):
            return self._commit_loose(writes, recorded)
        try:
            with self.exclusive(size_of(writes)) as database:
                before, changes = self.changes_of(database, writes)
                if recorded:
                    known = [before[each.collection, each.id] for each in writes]
                    found += self._recorded(writes, known)
                number = self.file.number()
                self._record(*self._records_of(found))
                self._write(self.loose.with_steps(database, changes, before), before)
                origin().rows += len(found)
                return number
        except (RevisionConflict, NotStored, FleetLevel):
            raise
        except StoreError as error:
            self._record_failure([{name: each.row[name] for name in ("action", "resource")} for each in found], error)
            raise

    def _commit_loose(self, writes: Sequence[Write], recorded: bool) -> int:
        """In a fleet, without its lock and its database; the revision that all of them have, which is negative."""
        rows: list[dict[str, Any]] = []
        if any(each.collection == CREDENTIALS for each in writes):
            self.loose.begin()
        try:
            with self.effects.settled(), self.file.transaction(size_of(writes)) as database:
                before, changes = self.changes_of(database, writes, number=0)
                if recorded:
                    known = [before[each.collection, each.id] for each in writes]
                    rows += (each.row for each in self._recorded(writes, known))
                if rows:
                    self.trail.append_all(rows)
                stepped = self.loose.with_steps(database, changes, before)
                self._write(stepped, before)
                return stepped[-1].revision
        except (RevisionConflict, NotStored, FleetLevel):
            raise
        except StoreError as error:
            self._record_failure([{name: each[name] for name in ("action", "resource")} for each in rows], error)
            raise

    def stage_records(self, staged: Staging) -> None:
        """Before `commit_staged`: make what is recorded of it, which takes long and holds up no other change."""
        for part in staged.writes():
            known = [self.get(each.collection, each.id) if each.expect else None for each in part]
            found = self._recorded(part, known)
            changes = [each.change for each in found if each.change is not None]
            staged.add_records([self.trail.parts(each.row) for each in found], self.history.rows_of(changes))

    def commit_staged(self, staged: Staging) -> int:
        """Commit accounts that are too many for memory. Raises as `commit`."""

        def record(_database: Any) -> None:
            first = self.trail.head.seq
            with closing(staged.entries()) as parts:
                self.trail.insert(self.trail.joined(parts))
            self.history.insert(self._revisions_of(staged))
            origin().rows += self.trail.head.seq - first

        try:
            if self._ledger is not None and staged.size > LARGEST:
                return self._send_staged(self._ledger, staged)
            with self.alone(staged.size):
                return self.accounts.commit_staged(staged, record)
        except (RevisionConflict, FleetLevel):
            raise
        except StoreError as error:
            self._record_failure([{"action": "account.imported", "details": {"accounts": staged.count}}], error)
            raise

    def _send_staged(self, ledger: Ledger, staged: Staging) -> int:
        """In a fleet what is long is with the ledger before the turn, and in this file behind it.

        So other nodes wait for little more than the ledger's own work; changes of this one wait for all of it. If it
        ends between the two, everything is read from the ledger.
        """
        self.file.require_room(staged.size)
        with ledger.sending(staged.size) as sent:
            with closing(staged.documents()) as documents:
                sent.add_documents(documents)
            sent.add_changes(staged.changes)
            with self.effects.settled(), self._changing:
                with self._unchecked(), self.alone():  # so all that this node has committed is here and settled
                    if self._ledger is not ledger or self._turn is None:
                        raise LedgerError("this node has another ledger since a moment ago: try again")
                    audited = self._turn.audited
                with self.file.with_memory():  # so no other entry follows the last one
                    return self._commit_sent(ledger, staged, sent, audited)

    def _commit_sent(self, ledger: Ledger, staged: Staging, sent: RowsSent, audited: int) -> int:
        with closing(staged.entries()) as parts:
            entries, revisions = tuple(self.trail.joined(parts)), self._revisions_of(staged)
        try:
            sent.add_audit(entries, self.file.last_number)
            self._unsettled.prepare(entries)
            self._begin_turn(ledger, staged.size, sent)
            staged.require_current()
            number = self.file.last_number + 1
            if entries:
                self._unsettled.begin(number)
        except BaseException:
            self._unsettled.end()
            self._end_turn()
            raise
        revisions = [self.history.next_of(each) for each in revisions]
        rows = tuple(each._replace(changes=()) for each in revisions)
        stamp = self._append(Commit(number, (), rows, self.trail.after(audited)))

        def record(database: Any) -> None:
            self.trail.insert(entries)
            self.history.insert(revisions)
            note_stamp(database, number, stamp)
            self.file.after(self._unsettled.end)

        try:
            with self._adopting():
                self.accounts.commit_staged(staged, record)
        except StoreError as error:
            raise OutcomeUnknown(number) from error  # the fleet has it, and this file when all is read anew
        origin().rows += len(entries)
        return number

    def _revisions_of(self, staged: Staging) -> Sequence[RecordedRevision]:
        """The one that it makes, if any; as the next one now."""
        if next(iter(staged.changes), None) is None:
            return ()
        return [self.history.revision_with(staged.changes, origin().purpose, self.trail.stamp())]

    def resource_named(self, params: Mapping[str, str]) -> dict[str, Any] | None:
        """The resource that the first parameter of a path names; `name` is None when there is no such resource."""
        parameter, identifier = next(iter(params.items()), ("", ""))
        if not parameter:
            return None
        collection = collection_of("api_key" if parameter == "key_id" else parameter.removesuffix("_id"))
        found = self.get(collection, identifier) or _named(self, collection, identifier)
        return _resource(collection, found.id if found else identifier, found.body if found else {})

    @contextmanager
    def alone(self, size: int = 0) -> Iterator[None]:
        """Within the block no other thread and no other node commits, and this file has all that they have committed.

        Of nodes that holds up to the first commit in it, which ends the turn of this one; each more has a turn of its
        own. `size` is about how many bytes one writes. Effects of commits follow behind the block. What waits for
        something else is done before it.
        """
        with self.effects.settled(), self._changing:
            if self._ledger is None or self._turn is not None:
                yield
                return
            try:
                self._begin_turn(self._ledger, size)
                yield
            finally:
                self._end_turn()

    def _begin_turn(self, ledger: Ledger, size: int, sent: RowsSent | None = None) -> None:
        try:
            while self._turn is None:
                try:
                    self._turn = self._held.enter_context(ledger.begin(*self.stamped(), size, sent))
                except TooFarBehind:
                    self.catch_up()
        except (HistoryPruned, TooFarBehind) as error:
            raise LedgerError(f"this node has to read everything anew before it changes anything: {error}") from error
        missing = self._turn.missing
        self._adopt_from_ledger(missing, sum(each.commit.size for each in missing))
        with self.file.transaction():
            self._settle(self.file.upcoming(), ())
        for check in self._thread.checks:
            check()

    def _end_turn(self) -> None:
        self._turn = None
        self._held.close()

    @contextmanager
    def rechecked(self, check: Callable[[], object]) -> Iterator[None]:
        """In a fleet a commit within the block is checked by this again, against all that other nodes have committed.

        It waits for nothing, and takes no lock that the caller hasn't. What it raises refuses the commit.
        """
        before = self._thread.checks
        self._thread.checks = (*before, check)
        try:
            yield
        finally:
            self._thread.checks = before

    @contextmanager
    def _unchecked(self) -> Iterator[None]:
        """A turn within the block commits nothing that is to be checked."""
        before, self._thread.checks = self._thread.checks, ()
        try:
            yield
        finally:
            self._thread.checks = before

    @contextmanager
    def exclusive(self, size: int = 0) -> Iterator[Any]:
        """As `alone`; and what is committed in the block is one commit, of about `size` bytes."""
        with self.alone(size), self.file.transaction(size) as database:
            yield database

    @contextmanager
    def recorded(self, action: str, resource: dict[str, Any], details: dict[str, Any]) -> Iterator[None]:
        """As `exclusive`, with this entry of the audit trail: for changes of `UNAUDITED` collections."""
        row = {"action": action, "resource": resource, "details": details}
        try:
            with self.exclusive():
                self.trail.append_all([row])
                yield
        except StoreError as error:
            self._record_failure([row], error)
            raise

    def _confirm(self, database: sqlite3.Connection, number: int) -> None:
        """See `FleetFile`: what has been written is appended to the ledger, unless it is from there."""
        if self._ledger is None or self._adopts:
            return
        assert self._turn is not None
        entries, durable = self.trail.after(self._turn.audited), self.trail.durable
        if new := [each for each in entries if each[0] > durable]:
            self._unsettled.begin(number, new)
            self.file.after(self._unsettled.end)
        note_stamp(database, number, self._append(replace(commit_of(database, number), audit=entries)))

    def _append(self, commit: Commit) -> UUID:
        """Have the ledger make it; its stamp. Whatever becomes of it, there is one commit in a turn."""
        assert self._turn is not None
        try:
            stamp = self._turn.append(commit)
        except OutcomeUnknown as error:
            raise OutcomeUnknown(commit.number) from error
        except StoreError:
            self._unsettled.end()
            raise
        finally:
            self._end_turn()
        origin().commit = commit.number
        self._thread.checks = ()  # of a commit that is made
        return stamp

    def _records_of(self, found: Sequence[_Recorded]) -> tuple[tuple[RecordedRevision, ...], tuple[Row, ...]]:
        """The revision and the entries of the audit trail, for `_write` in the same transaction."""
        changes = [each.change for each in found if each.change is not None]
        audit = tuple(self.trail.rows_of([each.row for each in found]))
        if not changes:
            return (), audit
        return (self.history.revision_of(changes, origin().purpose, self.trail.stamp()),), audit

    def _record_failure(self, rows: Sequence[Mapping[str, Any]], error: StoreError) -> None:
        """That changes were not made. If that can't be written either, the caller's error says enough.

        Of what the ledger may have this is written when it is known.
        """
        if self._unsettled.number:
            return

        def record() -> None:
            with suppress(StoreError):
                self.trail.append_all([{**each, **failed(error, each)} for each in rows])

        self.file.after_failure(record)

    def _recorded(self, writes: Sequence[Write], known: Sequence[Document | None]) -> list[_Recorded]:
        return [each for each in map(self._recorded_of, writes, known) if each is not None]

    def _recorded_of(self, write: Write, document: Document | None) -> _Recorded | None:
        """What is recorded of a change that is about to be made; None when that is nothing."""
        if write.collection in UNAUDITED:
            return None
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
def open_engine(
    data: DataDir, kind: str, operation: str, ledger: Ledger | None = None, catches_up: bool = True
) -> Iterator[Engine]:
    """The engine, for changes by the `command_line` or the `system` without the API.

    It has all that the ledger has if it `catches_up`. That of a node forgets without a ledger what it has of its fleet.
    The caller holds the lock of the data directory. Raises `StoreError`.
    """
    require_store(data)
    engine = Engine(data, _seal(data, make=kind == "system"), ledger)
    try:
        if catches_up:
            engine.catch_up()
        with on_behalf_of(kind, operation):
            yield engine
    finally:
        engine.close()


def _seal(data: DataDir, make: bool) -> SecretBox | None:
    """The seal of the installation; None without its key, which another process may have from systemd."""
    with sealing_as(StoreError):
        seal = secret_box_of(data)
    return seal if make or seal.is_made else None


def _is_renewal_alone(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
    """Whether an account got a new hash of its password and nothing else, which is no change of the configuration."""
    if before is None or after is None or not is_renewed(before, after):
        return False
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} <= _HASHES


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


_BY_NAME = frozenset({"lists", "pools", "policies", "nodes"})
"""Collections whose documents a path names by id or name."""


def _named(store: Store, collection: str, name: str) -> Document | None:
    """The object with this name, of a kind that paths also name by it."""
    return next(iter(store.find(collection, name=name)), None) if collection in _BY_NAME else None
