"""A restore without the keys: what was sealed with them is removed, and the operator learns what to enter again.

Hashed secrets (passwords of users and accounts, API keys) need no key and are restored. Sealed ones, which the product
sends to others, are lost: passwords for upstream proxies, signing secrets of webhooks and authentication back ends,
header values of webhooks and of sources of lists and pools.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from api.engine.kind import Kind
from api.objects.kinds import KINDS
from api.objects.pools import without_lost_password
from api.services import pool_sources
from api.store import Store
from api.store.interface import Write
from config.files.secret_box import SecretBox


@dataclass(frozen=True, slots=True)
class LostSecret:
    """One secret that could not be opened: the kind and name of its resource, and the field."""

    kind: str
    name: str
    field: str


def remove(store: Store, seal: SecretBox) -> list[LostSecret]:
    """Remove from `store` each secret that `seal` does not open, in one commit.

    Raises `SecretBoxError`, `StoreError`.
    """
    lost: list[LostSecret] = []
    writes = [write for kind in KINDS.values() for write in _of_kind(kind, store, seal, lost)]
    writes += _fetched(store, seal)
    if writes:
        store.commit(writes)
    return lost


def _of_kind(kind: Kind[Any], store: Store, seal: SecretBox, lost: list[LostSecret]) -> Iterator[Write]:
    if kind.transfer.openable is None:
        return
    for document in store.find(kind.collection):
        before = kind.model.model_validate(document.body)
        record, fields = kind.transfer.openable(before, seal)
        lost += [LostSecret(kind.collection, record.name, field) for field in fields]
        if record != before:
            yield Write(kind.collection, document.id, record.model_dump(mode="json"))


def _fetched(store: Store, seal: SecretBox) -> Iterator[Write]:
    """Upstreams that were fetched with passwords are fetched once more."""
    for document in store.find(pool_sources.COLLECTION):
        record = pool_sources.FetchedUpstreams.model_validate(document.body)
        if any(without_lost_password(each, seal) is not each for each in record.upstreams):
            yield Write(pool_sources.COLLECTION, document.id, None)
