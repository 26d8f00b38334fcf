"""The present state of everything that the document is about, read as of one moment."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from api.errors import TooBusy
from api.security import users
from api.security.users import User
from api.services import proxy_cache, settings, webhooks
from api.services.object_kinds import KINDS
from api.store import Document, Store
from api.store.accounts import PLANS, AccountStore
from config.model.fleet_accounts import FleetAccount
from config.model.lists import DestinationList
from config.model.plans import Plan
from config.model.policies import Policy
from config.model.pools import Pool
from config.model.proxies import ProxyRecord
from config.model.user_names import name_key
from config.model.webhooks import WebhookRecord
from config.settings.runtime import Stored

R = TypeVar("R", ProxyRecord, User, WebhookRecord, Plan, FleetAccount, Pool, DestinationList, Policy)

_OF_ACCOUNTS = "accounts"
_BOOKKEEPING = frozenset(("updated_at", "last_login"))


@dataclass(frozen=True, slots=True)
class StoredRecord(Generic[R]):
    """A record and its revision."""

    record: R
    revision: int


@dataclass(frozen=True, slots=True)
class State:
    """All of it but accounts of the fleet, which may be too many.

    `revisions` change with whatever is stored, `mark` with the configuration alone: it is the ETag.
    """

    proxies: dict[str, StoredRecord[ProxyRecord]]
    users: dict[str, StoredRecord[User]]
    webhooks: list[StoredRecord[WebhookRecord]]
    settings: Stored
    plans: dict[str, StoredRecord[Plan]]
    objects: dict[str, dict[str, StoredRecord[Any]]]
    """Lists, pools and policies, by collection and name."""
    revisions: tuple[tuple[str, str, int], ...]
    mark: int


ROUNDS = 50
"""Readings of all the configuration until two successive ones are equal."""


def read_state(store: Store, accounts: AccountStore) -> State:
    """Proxies and plans by name, users by name without regard to case, webhooks oldest first; all as of one moment.

    Raises `TooBusy` while there is no moment without a change.
    """

    def find() -> dict[str, list[Document]]:
        return {**_find(store), PLANS: accounts.find(PLANS), _OF_ACCOUNTS: [_mark_of(accounts)]}

    found, again = find(), find()
    for _ in range(ROUNDS):
        if _revisions(found) == _revisions(again):
            break
        found, again = again, find()  # there was a change between, maybe of several of them
    else:
        raise TooBusy(1, "The configuration is changed all the time")
    hooks = _records(found[webhooks.COLLECTION], WebhookRecord)
    return State(
        proxies={each.record.name: each for each in _records(found[proxy_cache.COLLECTION], ProxyRecord)},
        users={name_key(each.record.username): each for each in _records(found[users.COLLECTION], User)},
        webhooks=sorted(hooks, key=lambda each: (each.record.created_at, each.record.id)),
        settings=next((settings.stored_of(each.body) for each in found[settings.COLLECTION]), {}),
        plans={each.record.name: each for each in _records(found[PLANS], Plan)},
        objects={
            name: {each.record.name: each for each in _records(found[name], kind.model)} for name, kind in KINDS.items()
        },
        revisions=_revisions(found),
        mark=_mark(found),
    )


def _find(store: Store) -> dict[str, list[Document]]:
    names = (proxy_cache.COLLECTION, users.COLLECTION, webhooks.COLLECTION, settings.COLLECTION, *KINDS)
    return {name: store.find(name) for name in names}


def _mark_of(accounts: AccountStore) -> Document:
    """A document that changes when an account or a plan does."""
    revision = accounts.last_change()
    return Document(accounts.id, revision, {})


def _records(documents: list[Document], model: type[R]) -> list[StoredRecord[R]]:
    return [StoredRecord(model.model_validate(each.body), each.revision) for each in documents]


def _revisions(found: dict[str, list[Document]]) -> tuple[tuple[str, str, int], ...]:
    return tuple(sorted((name, each.id, each.revision) for name, all_ in found.items() for each in all_))


def _mark(found: dict[str, list[Document]]) -> int:
    content: dict[str, Any] = {
        name: {each.id: _lasting(each.body) for each in documents}
        for name, documents in found.items()
        if name not in (PLANS, _OF_ACCOUNTS)
    }
    (accounts,) = found[_OF_ACCOUNTS]
    if accounts.revision:
        content[_OF_ACCOUNTS] = [accounts.id, accounts.revision]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:7])


def _lasting(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in _BOOKKEEPING}
