"""The present state of everything that the document is about, read as of one moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from api.engine.objects import load
from api.engine.records import Stored
from api.objects import live_settings
from api.objects.kinds import KINDS
from api.store import Document, FleetStore
from api.store.accounts import ACCOUNTS, PLANS
from config.settings import runtime

_BOOKKEEPING = frozenset(("updated_at", "last_login"))


class State:
    """All of it but accounts of the fleet, which may be too many. Most of it is made when it is asked for.

    `revisions` change with whatever is stored.
    """

    def __init__(self, found: Mapping[str, list[Document]], accounts: tuple[str, int]) -> None:
        """Documents by collection, and what changes when an account or a plan does."""
        self._found = found
        self._accounts = accounts
        of_documents = ((name, each.id, each.revision) for name, documents in found.items() for each in documents)
        self.revisions: tuple[tuple[str, str, int], ...] = (*of_documents, (ACCOUNTS, *accounts))

    @cached_property
    def records(self) -> Mapping[str, list[Stored[Any]]]:
        """By collection, the oldest first."""
        return {name: _records(name, self._found[name]) for name in KINDS if name != ACCOUNTS}

    @cached_property
    def settings(self) -> runtime.Stored:
        """The overrides of settings."""
        bodies = {each.id: each.body for each in self._found[live_settings.COLLECTION]}
        return live_settings.stored_of(bodies.get(live_settings.DOCUMENT, {}))

    @cached_property
    def mark(self) -> int:
        """The ETag: it changes with the configuration alone."""
        return _mark(self._found, self._accounts)

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
        return State(found, (str(store.accounts.horizon), store.accounts.last_change()))


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
