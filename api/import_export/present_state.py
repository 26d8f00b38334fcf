"""The present state of everything that the document is about, read as of one moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.engine.objects import load
from api.engine.records import Stored
from api.objects import live_settings
from api.objects.kinds import KINDS
from api.store import Document, FleetStore
from api.store.accounts import ACCOUNTS, PLANS
from config.settings import runtime

_BOOKKEEPING = frozenset(("updated_at", "last_login"))


@dataclass(frozen=True, slots=True)
class State:
    """All of it but accounts of the fleet, which may be too many.

    `revisions` change with whatever is stored, `mark` with the configuration alone: it is the ETag.
    """

    records: Mapping[str, list[Stored[Any]]]
    """By collection, the oldest first."""
    settings: runtime.Stored
    revisions: tuple[tuple[str, str, int], ...]
    mark: int

    def by_key(self, collection: str) -> dict[Any, Stored[Any]]:
        """Those of a kind by what documents know them by: users by name without regard to case, others by name."""
        key = KINDS[collection].transfer.key
        return {key(each.record): each for each in self.records[collection]}

    def by_id(self, collection: str) -> dict[str, Any]:
        """The records of a kind."""
        return {each.record.id: each.record for each in self.records[collection]}


def read_state(store: FleetStore) -> State:
    """What the last commit has left; there is none meanwhile."""
    with store.file.reading():
        found = {name: store.find(name) for name in (*KINDS, live_settings.COLLECTION) if name != ACCOUNTS}
        accounts = str(store.accounts.horizon), store.accounts.last_change()
    settings = {each.id: each.body for each in found[live_settings.COLLECTION]}
    of_documents = ((name, each.id, each.revision) for name, documents in found.items() for each in documents)
    return State(
        records={name: _records(name, found[name]) for name in KINDS if name != ACCOUNTS},
        settings=live_settings.stored_of(settings.get(live_settings.DOCUMENT, {})),
        revisions=(*of_documents, (ACCOUNTS, *accounts)),
        mark=_mark(found, accounts),
    )


def _records(collection: str, documents: list[Document]) -> list[Stored[Any]]:
    found = [load(KINDS[collection], each) for each in documents]
    return sorted(found, key=lambda each: (each.record.created_at, each.record.id))


def _mark(found: Mapping[str, list[Document]], accounts: tuple[str, int]) -> int:
    """`accounts` change when an account or a plan does."""
    content: dict[str, Any] = {
        name: {each.id: _lasting(each.body) for each in documents} for name, documents in found.items() if name != PLANS
    }
    if accounts[1]:
        content[ACCOUNTS] = accounts
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:7])


def _lasting(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in _BOOKKEEPING}
