"""A configuration store that writes an entry of the audit trail, and a revision, before every change.

It knows who changes something from `api.audit.context`; changes of `UNAUDITED` collections have no entry, and what is
no change of the configuration has no revision (`api.history`).
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from api.audit.context import on_behalf_of, origin
from api.audit.masking import difference, field_names
from api.audit.refused import Budget
from api.audit.trail import Entry, Trail
from api.errors import DomainError
from api.history import KINDS, DocumentChange, Probe, Recorder, StagedChanges, is_renewed, kind_of
from api.store import Change, Document, NotInEffect, NotStored, RevisionConflict, Store, StoreError, Write
from api.store.interface import Predicate
from config.files.paths import DataDir
from config.files.secret_box import SecretBox, SecretBoxError, secret_box_of

UNAUDITED = frozenset({"refresh_families", "fetched_upstreams"})
"""Collections of sign-ins, which have entries of their own, written by their handlers; and of what is fetched."""

PART = 500
"""Entries about failures that are written at once."""

CONFIGURATION, ACCOUNTS = "configuration", "accounts"
"""Names of the two stores in revisions."""

CREDENTIALS = "credentials"
OF_HOLDERS = ("id", "prefix", "expires_at")
"""What entries have of credentials that holders of accounts make and revoke."""
OF_ALL_HOLDERS = 10_000
"""Such entries of all holders in an hour."""

_HASHES = frozenset({"password_hash", "renewal_hash"})
_REVOKED = frozenset({"api_keys", CREDENTIALS})
"""Collections whose documents are revoked, not deleted."""


@dataclass(frozen=True, slots=True)
class _Audited:
    """A change that is about to be made: its audit entry, and what it is of a revision, if it is of one."""

    row: dict[str, Any]
    change: DocumentChange | None


class AuditedStore:
    """The `Store` that the API works on."""

    def __init__(self, store: Store, trail: Trail, history: Recorder, name: str = CONFIGURATION) -> None:
        self._store = store
        self._trail = trail
        self._history = history
        self._name = name
        self._of_holders = Budget(in_all=OF_ALL_HOLDERS)

    @property
    def revision(self) -> int:
        """See `Store.revision`."""
        return self._store.revision

    def get(self, collection: str, identifier: str) -> Document | None:
        """See `Store.get`."""
        return self._store.get(collection, identifier)

    def revision_of(self, collection: str, identifier: str) -> int:
        """See `Store.revision_of`."""
        return self._store.revision_of(collection, identifier)

    def changed_after(self, collection: str, identifier: str, step: int) -> bool:
        """See `Store.changed_after`."""
        return self._store.changed_after(collection, identifier, step)

    def find(self, collection: str, where: Predicate | None = None, **fields: Any) -> list[Document]:
        """See `Store.find`."""
        return self._store.find(collection, where, **fields)

    def every(self, collection: str) -> list[Document]:
        """See `Store.every`."""
        return self._store.every(collection)

    def put(self, collection: str, document: Mapping[str, Any], expect: int | None = None) -> Document:
        """See `Store.put`."""
        with self.audited([Write(collection, document["id"], document, expect)]):
            return self._store.put(collection, document, expect)

    def delete(self, collection: str, identifier: str, expect: int | None = None) -> int:
        """See `Store.delete`."""
        with self.audited([Write(collection, identifier, None, expect)]):
            return self._store.delete(collection, identifier, expect)

    def commit(self, writes: Sequence[Write]) -> list[int]:
        """See `Store.commit`."""
        with self.audited(writes):
            return self._store.commit(writes)

    def changes(self, since: int) -> list[Change]:
        """See `Store.changes`."""
        return self._store.changes(since)

    def wait(self, since: int, timeout: float) -> int:
        """See `Store.wait`."""
        return self._store.wait(since, timeout)

    def check(self) -> None:
        """See `Store.check`."""
        self._store.check()

    def close(self) -> None:
        """See `Store.close`."""
        self._store.close()

    @contextmanager
    def audited(self, writes: Sequence[Write]) -> Iterator[None]:
        """Write entries and revision of changes before they are made; what the store refuses has another entry.

        Changes of the configuration are made one at a time.
        """
        with self._revision(writes):
            found = [each for each in map(self._prepared, writes) if each is not None]
            if not found:
                yield
                return
            changes = [each.change for each in found if each.change is not None]
            entries = self._append([each.row for each in found], changes)
            try:
                yield
            except NotInEffect:
                self._made(changes)
                raise
            except BaseException as error:
                self._refused(entries, changes, error)
                raise
            self._made(changes)

    def _revision(self, writes: Sequence[Write]) -> AbstractContextManager[None]:
        """Without documents of the configuration no other change has to wait."""
        if not any(each.collection in KINDS for each in writes):
            return nullcontext()
        return self._history.revision(origin().purpose)

    @contextmanager
    def audited_in_parts(self, parts: Callable[[], Iterable[Sequence[Write]]]) -> Iterator[AuditedParts]:
        """As `audited`, for new and changed documents that are too many for memory: `parts` reads them anew each time.

        Between the parts others append entries. The changes are made within `AuditedParts.revision`.
        """
        numbers = array("Q")  # of the entry of each write, 0 for none
        with self._history.staging() as staged:
            try:
                for part in parts():
                    numbers.extend(self._audit_part(part, staged))
                yield AuditedParts(self, staged)
            except NotInEffect:
                raise  # the changes were made
            except (StoreError, DomainError) as error:
                self._audit_failures(itertools.chain.from_iterable(parts()), numbers, error)
                raise

    def _audit_part(self, part: Sequence[Write], staged: StagedChanges) -> Iterator[int]:
        """Write the entries of a part and its changes of the revision: the numbers of the entries."""
        found = [self._prepared(each) for each in part]
        changes = [each.change for each in found if each is not None and each.change is not None]
        rows = [each.row for each in found if each is not None]
        entries = iter(self._trail.append_all(rows, self._history.stage(staged, changes)))
        return (0 if each is None else next(entries).seq for each in found)

    @contextmanager
    def staged_revision(self, staged: StagedChanges) -> Iterator[None]:
        """The staged changes are made within the block, and are a revision."""
        if staged.first is None:
            yield
            return
        with self._history.revision(origin().purpose):
            probe = Probe(self._name, self._store.revision, staged.first.collection, staged.first.id)
            self._history.adopt(staged, probe, self._trail.stamp())
            try:
                yield
            except NotInEffect:
                self._history.made()
                raise
            except BaseException as error:
                self._history.refused(self._is_known(error))
                raise
            self._history.made()

    def _audit_failures(self, writes: Iterable[Write], numbers: Iterable[int], error: Exception) -> None:
        """As `_refused`, without the entries."""
        rows = (
            {
                "action": f"{kind_of(each.collection)}.{'updated' if each.expect else 'created'}",
                "resource": _resource(each.collection, each.id, each.body or {}),
                **_failed(number, error),
            }
            for each, number in zip(writes, numbers, strict=False)
            if number
        )
        try:
            while part := list(itertools.islice(rows, PART)):
                self._trail.append_all(part)
        except StoreError:
            return

    def _prepared(self, write: Write) -> _Audited | None:
        """A change that is about to be made; None when it needs no entry."""
        if write.collection in UNAUDITED:
            return None
        document = self._store.get(write.collection, write.id)
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
        if write.collection not in KINDS or _is_renewal_alone(before, write.body):
            return _Audited(row, None)
        return _Audited(row, DocumentChange(write.collection, write.id, before, write.body, tuple(fields)))

    def _of_holder(self, account_id: str, write: Write, before: Mapping[str, Any] | None) -> _Audited | None:
        """A holder's credential, which may be one of very many."""
        details = self._of_holders.take(account_id)
        if details is None:
            return None
        parts = [each and {name: each[name] for name in OF_HOLDERS} for each in (before, write.body)]
        old, new = difference(*parts)
        resource = {"type": kind_of(CREDENTIALS), "id": write.id, "name": None}
        row = {"action": _action(CREDENTIALS, old, new), "resource": resource, "before": old, "after": new}
        return _Audited({**row, "details": details or None}, None)

    def _append(self, rows: list[dict[str, Any]], changes: Sequence[DocumentChange]) -> list[Entry]:
        if not changes:
            return self._trail.append_all(rows)
        probe = Probe(self._name, self._store.revision, changes[0].collection, changes[0].id)
        entries = self._trail.append_all(rows, self._history.write(probe, changes, self._trail.stamp))
        self._history.corrected()
        return entries

    def _made(self, changes: Sequence[DocumentChange]) -> None:
        if changes:
            self._history.made()

    def _refused(self, entries: Sequence[Entry], changes: Sequence[DocumentChange], error: BaseException) -> None:
        """Record that the changes were not made. If that can't be written either, the caller's error says enough."""
        if changes:
            self._history.refused(self._is_known(error))
        if not isinstance(error, StoreError):
            return
        rows = [{**_of(each), **_failed(each.seq, error)} for each in entries]
        try:
            self._trail.append_all(rows, self._history.correct if changes else None)
        except StoreError:
            return
        if changes:
            self._history.corrected()

    def _is_known(self, error: BaseException) -> bool:
        """Whether it is certain that nothing was changed: a store that can't say so refuses all until a restart."""
        if isinstance(error, RevisionConflict | NotStored):
            return True
        try:
            self._store.check()
        except StoreError:
            return False
        return isinstance(error, StoreError)


@dataclass(frozen=True, slots=True)
class AuditedParts:
    """Changes whose entries are written, and which are about to be made."""

    _store: AuditedStore
    _staged: StagedChanges

    def revision(self) -> AbstractContextManager[None]:
        """They are made within the block, and are one revision. Holds up other changes of the configuration."""
        return self._store.staged_revision(self._staged)


def _is_renewal_alone(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
    """Whether an account got a new hash of its password and nothing else, which is no change of the configuration."""
    if before is None or after is None or not is_renewed(before, after):
        return False
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} <= _HASHES


def _failed(number: int, error: Exception) -> dict[str, Any]:
    """That the change of the entry with this number was not made."""
    details = {"of": number, "error": type(error).__name__}
    return {"outcome": "failed", "before": None, "after": None, "details": details}


def _of(entry: Entry) -> dict[str, Any]:
    return {name: entry.content[name] for name in ("action", "resource")}


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


_OF_PATHS = {
    "proxy_id": (0, "proxies"),
    "user_id": (0, "users"),
    "key_id": (0, "api_keys"),
    "webhook_id": (0, "webhooks"),
    "account_id": (1, "accounts"),
    "plan_id": (1, "plans"),
    "list_id": (0, "lists"),
    "pool_id": (0, "pools"),
    "policy_id": (0, "policies"),
}
"""The store, by its place, and the collection of what parameters of paths name."""
_BY_NAME = frozenset({"lists", "pools", "policies"})
"""Collections whose documents a path names by id or name."""


def resource_named(stores: tuple[Store, Store], params: Mapping[str, str]) -> dict[str, Any] | None:
    """The resource that the first parameter of a path names; `name` is None when there is no such resource.

    `stores` are those of the configuration and of accounts.
    """
    parameter, identifier = next(iter(params.items()), ("", ""))
    if parameter not in _OF_PATHS:
        return {"type": parameter.removesuffix("_id"), "id": identifier, "name": None} if parameter else None
    place, collection = _OF_PATHS[parameter]
    found = stores[place].get(collection, identifier) or _named(stores[place], collection, identifier)
    return _resource(collection, found.id if found else identifier, found.body if found else {})


def _named(store: Store, collection: str, name: str) -> Document | None:
    """The object with this name, of a kind that paths also name by it."""
    return next(iter(store.find(collection, name=name)), None) if collection in _BY_NAME else None


@contextmanager
def audited(data: DataDir, store: Store, kind: str, operation: str) -> Iterator[AuditedStore]:
    """`store` with a trail, for changes by the `command_line` or the `system` without the API.

    Raises `StoreError`.
    """
    trail = Trail(data)
    try:
        history = Recorder(trail, _seal(data, make=kind == "system"))
        history.settle({CONFIGURATION: store})
        with on_behalf_of(kind, operation):
            yield AuditedStore(store, trail, history)
    finally:
        trail.close()


def _seal(data: DataDir, make: bool) -> SecretBox | None:
    """The seal of the installation; None without its key, which another process may have from systemd."""
    try:
        seal = secret_box_of(data)
    except SecretBoxError as error:
        raise StoreError(str(error)) from error
    return seal if make or seal.is_made else None
