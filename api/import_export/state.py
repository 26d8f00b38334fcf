"""The present state of everything that the document is about, read as of one moment."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from api.errors import TooBusy
from api.security import users
from api.security.users import User
from api.services import proxy_cache, settings, webhooks
from api.services.proxy_cache import StoredProxy
from api.store import Document, Store
from config.model.user_names import name_key
from config.model.webhooks import WebhookRecord
from config.settings.runtime import Stored

_BOOKKEEPING = frozenset(("updated_at", "last_login"))


@dataclass(frozen=True, slots=True)
class StoredUser:
    """A user and the revision."""

    user: User
    revision: int


@dataclass(frozen=True, slots=True)
class StoredHook:
    """A webhook and the revision."""

    record: WebhookRecord
    revision: int


@dataclass(frozen=True, slots=True)
class State:
    """All of it. `revisions` change with whatever is stored, `mark` with the configuration alone: it is the ETag."""

    proxies: dict[str, StoredProxy]
    users: dict[str, StoredUser]
    webhooks: list[StoredHook]
    settings: Stored
    revisions: tuple[tuple[str, str, int], ...]
    mark: int


ROUNDS = 50
"""Readings of all the configuration until two successive ones are equal."""


def read_state(store: Store) -> State:
    """Proxies by name, users by name without regard to case, webhooks oldest first; all as of one moment.

    Raises `TooBusy` while there is no moment without a change.
    """
    found, again = _find(store), _find(store)
    for _ in range(ROUNDS):
        if _revisions(found) == _revisions(again):
            break
        found, again = again, _find(store)  # there was a change between, maybe of several of them
    else:
        raise TooBusy(1, "The configuration is changed all the time")
    loaded = [StoredHook(WebhookRecord.model_validate(each.body), each.revision) for each in found[webhooks.COLLECTION]]
    people = [StoredUser(users.load(each), each.revision) for each in found[users.COLLECTION]]
    return State(
        proxies={each.record.name: each for each in map(proxy_cache.load, found[proxy_cache.COLLECTION])},
        users={name_key(each.user.username): each for each in people},
        webhooks=sorted(loaded, key=lambda each: (each.record.created_at, each.record.id)),
        settings=next((settings.stored_of(each.body) for each in found[settings.COLLECTION]), {}),
        revisions=_revisions(found),
        mark=_mark(found),
    )


def _find(store: Store) -> dict[str, list[Document]]:
    names = (proxy_cache.COLLECTION, users.COLLECTION, webhooks.COLLECTION, settings.COLLECTION)
    return {name: store.find(name) for name in names}


def _revisions(found: dict[str, list[Document]]) -> tuple[tuple[str, str, int], ...]:
    return tuple(sorted((name, each.id, each.revision) for name, all_ in found.items() for each in all_))


def _mark(found: dict[str, list[Document]]) -> int:
    content = {name: {each.id: _lasting(each.body) for each in documents} for name, documents in found.items()}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:7])


def _lasting(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in _BOOKKEEPING}
