"""The present state of everything that the document is about, read as of one moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.engine.objects import load
from api.engine.records import Stored
from api.errors import TooBusy
from api.objects.kinds import KINDS
from api.services import settings
from api.store import Document, Store
from api.store.accounts import ACCOUNTS, PLANS, AccountStore
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


ROUNDS = 50
"""Readings of all the configuration until two successive ones are equal."""


def read_state(store: Store, accounts: AccountStore) -> State:
    """Raises `TooBusy` while there is no moment without a change."""

    def find() -> dict[str, list[Document]]:
        found = {name: store.find(name) for name in (*KINDS, settings.COLLECTION) if name not in (PLANS, ACCOUNTS)}
        return {**found, PLANS: accounts.find(PLANS), ACCOUNTS: [_mark_of(accounts)]}

    found, again = find(), find()
    for _ in range(ROUNDS):
        if _revisions(found) == _revisions(again):
            break
        found, again = again, find()  # there was a change between, maybe of several of them
    else:
        raise TooBusy(1, "The configuration is changed all the time")
    return State(
        records={name: _records(name, found[name]) for name in KINDS if name != ACCOUNTS},
        settings=next((settings.stored_of(each.body) for each in found[settings.COLLECTION]), {}),
        revisions=_revisions(found),
        mark=_mark(found),
    )


def _mark_of(accounts: AccountStore) -> Document:
    """A document that changes when an account or a plan does."""
    return Document(str(accounts.horizon), accounts.last_change(), {})


def _records(collection: str, documents: list[Document]) -> list[Stored[Any]]:
    found = [load(KINDS[collection], each) for each in documents]
    return sorted(found, key=lambda each: (each.record.created_at, each.record.id))


def _revisions(found: dict[str, list[Document]]) -> tuple[tuple[str, str, int], ...]:
    return tuple(sorted((name, each.id, each.revision) for name, all_ in found.items() for each in all_))


def _mark(found: dict[str, list[Document]]) -> int:
    content: dict[str, Any] = {
        name: {each.id: _lasting(each.body) for each in documents}
        for name, documents in found.items()
        if name not in (PLANS, ACCOUNTS)
    }
    (accounts,) = found[ACCOUNTS]
    if accounts.revision:
        content[ACCOUNTS] = [accounts.id, accounts.revision]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:7])


def _lasting(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in _BOOKKEEPING}
