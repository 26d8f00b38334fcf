"""A configuration store that writes an entry of the audit trail before every change.

It knows who changes something from `api.audit.context`; changes of `UNAUDITED` collections have no entry.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from api.audit.context import on_behalf_of, origin
from api.audit.masking import difference, field_names
from api.audit.trail import Entry, Trail
from api.errors import DomainError
from api.store import Change, Document, NotInEffect, Store, StoreError, Write
from api.store.interface import Predicate
from config.files.paths import DataDir

UNAUDITED = frozenset({"refresh_families"})
"""Collections of sign-ins: signing in and out has entries of its own, written by their handlers."""

PART = 500
"""Entries about failures that are written at once."""

_KINDS = {"proxies": "proxy", "settings": "settings"}
"""Names in the singular that `removesuffix` would get wrong."""

_REVOKED = frozenset({"api_keys", "credentials"})
"""Collections whose documents are revoked, not deleted."""


class AuditedStore:
    """The `Store` that the API works on."""

    def __init__(self, store: Store, trail: Trail) -> None:
        self._store = store
        self._trail = trail

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

    def find(self, collection: str, where: Predicate | None = None, **fields: Any) -> list[Document]:
        """See `Store.find`."""
        return self._store.find(collection, where, **fields)

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
        """Write the entries of changes before they are made; what the store refuses has another one, as failed."""
        rows = [row for row in map(self._row, writes) if row is not None]
        entries = self._trail.append_all(rows) if rows else []
        try:
            yield
        except NotInEffect:
            raise  # the change was made
        except StoreError as error:
            self._audit_failure(entries, error)
            raise

    @contextmanager
    def audited_in_parts(self, parts: Callable[[], Iterable[Sequence[Write]]]) -> Iterator[None]:
        """As `audited`, for new and changed documents that are too many for memory: `parts` reads them anew each time.

        Between the parts others append entries.
        """
        numbers = array("Q")  # of the entry of each write, 0 for none
        try:
            for part in parts():
                rows = [self._row(each) for each in part]
                entries = iter(self._trail.append_all([row for row in rows if row is not None]))
                numbers.extend(0 if row is None else next(entries).seq for row in rows)
            yield
        except NotInEffect:
            raise  # the changes were made
        except (StoreError, DomainError) as error:
            self._audit_failures(itertools.chain.from_iterable(parts()), numbers, error)
            raise

    def _audit_failures(self, writes: Iterable[Write], numbers: Iterable[int], error: Exception) -> None:
        """As `_audit_failure`, without the entries."""
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

    def _row(self, write: Write) -> dict[str, Any] | None:
        """The entry of a change that is about to be made; None when it needs none."""
        if write.collection in UNAUDITED:
            return None
        document = self._store.get(write.collection, write.id)
        if write.expect is not None and write.expect != (document.revision if document else 0):
            return None  # the store will refuse this
        before = document.body if document else None
        if before is None and write.body is None:
            return None
        old, new = difference(before, write.body, clear_headers=write.collection == "proxies")
        if not old and not new:
            return None
        if old is not None and new is not None:
            origin().changes.setdefault(write.id, set()).update(field_names(new))
        resource = _resource(write.collection, write.id, write.body or before or {})
        return {"action": _action(write.collection, old, new), "resource": resource, "before": old, "after": new}

    def _audit_failure(self, entries: Sequence[Entry], error: StoreError) -> None:
        """Record that the changes were not made. If that can't be written either, the caller's error says enough."""
        if not entries:
            return
        rows = [{**_of(each), **_failed(each.seq, error)} for each in entries]
        try:
            self._trail.append_all(rows)
        except StoreError:
            return


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


def kind_of(collection: str) -> str:
    """`proxy` of `proxies`."""
    return _KINDS.get(collection, collection.removesuffix("s"))


def _resource(collection: str, identifier: str, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": kind_of(collection), "id": identifier, "name": body.get("name") or body.get("username")}


_OF_PATHS = {
    "proxy_id": (0, "proxies"),
    "user_id": (0, "users"),
    "key_id": (0, "api_keys"),
    "webhook_id": (0, "webhooks"),
    "account_id": (1, "accounts"),
    "plan_id": (1, "plans"),
}
"""The store, by its place, and the collection of what parameters of paths name."""


def resource_named(stores: tuple[Store, Store], params: Mapping[str, str]) -> dict[str, Any] | None:
    """The resource that the first parameter of a path names; `name` is None when there is no such resource.

    `stores` are those of the configuration and of accounts.
    """
    parameter, identifier = next(iter(params.items()), ("", ""))
    if parameter not in _OF_PATHS:
        return {"type": parameter.removesuffix("_id"), "id": identifier, "name": None} if parameter else None
    place, collection = _OF_PATHS[parameter]
    found = stores[place].get(collection, identifier)
    return _resource(collection, identifier, found.body if found else {})


@contextmanager
def audited(data: DataDir, store: Store, kind: str, operation: str) -> Iterator[AuditedStore]:
    """`store` with a trail, for changes by the `command_line` or the `system` without the API.

    Raises `StoreError`.
    """
    trail = Trail(data)
    try:
        with on_behalf_of(kind, operation):
            yield AuditedStore(store, trail)
    finally:
        trail.close()
