"""A configuration store that writes a row of the audit trail before every change.

It knows who changes something from `api.audit.context`; collections of mere bookkeeping pass through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from api.audit.context import on_behalf_of
from api.audit.masking import difference
from api.audit.trail import Trail
from api.store import Change, Document, Store, StoreError
from api.store.contract import Predicate
from config.paths import DataDir

UNAUDITED = frozenset({"refresh_families"})
"""Collections of credentials under way: sign-ins and sign-outs have rows of their own, written by their handlers."""

_KINDS = {"proxies": "proxy", "settings": "settings"}
"""What `removesuffix` would get wrong."""


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
        row = self._announce(collection, document["id"], document, expect)
        try:
            return self._store.put(collection, document, expect)
        except StoreError as error:
            self._withdraw(row, error)
            raise

    def delete(self, collection: str, identifier: str, expect: int | None = None) -> int:
        """See `Store.delete`."""
        row = self._announce(collection, identifier, None, expect)
        try:
            return self._store.delete(collection, identifier, expect)
        except StoreError as error:
            self._withdraw(row, error)
            raise

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

    def _announce(
        self, collection: str, identifier: str, after: Mapping[str, Any] | None, expect: int | None
    ) -> tuple[int, str, dict[str, Any]] | None:
        """Write the row of a change that is about to be made: number, action, resource. None: nothing to tell."""
        if collection in UNAUDITED:
            return None
        document = self._store.get(collection, identifier)
        if expect is not None and expect != (document.revision if document else 0):
            return None  # the store will refuse this
        before = document.body if document else None
        if before is None and after is None:
            return None
        old, new = difference(before, after)
        if not old and not new:
            return None
        action, resource = _action(collection, old, new), _resource(collection, identifier, after or before or {})
        return self._trail.append(action, resource, before=old, after=new).seq, action, resource

    def _withdraw(self, row: tuple[int, str, dict[str, Any]] | None, error: StoreError) -> None:
        """The change was not made after all. If not even that can be written, the caller's error says enough."""
        if row is None:
            return
        seq, action, resource = row
        try:
            self._trail.append(action, resource, outcome="failed", details={"of": seq, "error": type(error).__name__})
        except StoreError:
            return


def _action(collection: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> str:
    kind = kind_of(collection)
    if collection == "settings":
        return "settings.updated" if new is not None else "settings.reset"
    if old is None:
        return f"{kind}.created"
    if new is None:
        return "api_key.revoked" if collection == "api_keys" else f"{kind}.deleted"
    if collection == "proxies" and new.keys() == {"status"}:
        return "proxy.started" if new["status"] == "active" else "proxy.stopped"
    return f"{kind}.updated"


def kind_of(collection: str) -> str:
    """`proxy` of `proxies`."""
    return _KINDS.get(collection, collection.removesuffix("s"))


def _resource(collection: str, identifier: str, body: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": kind_of(collection), "id": identifier, "name": body.get("name") or body.get("username")}


@contextmanager
def audited(data: DataDir, store: Store, kind: str, operation: str) -> Iterator[AuditedStore]:
    """`store` with a trail, for changes by the `command_line` or the `system` without the API. Raises `StoreError`."""
    trail = Trail(data)
    try:
        with on_behalf_of(kind, operation):
            yield AuditedStore(store, trail)
    finally:
        trail.close()
