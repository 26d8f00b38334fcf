"""Accounts and plans, as a restore compares them: a digest of each, since there may be hundreds of thousands.

Credentials are restored with their accounts and are not compared: they come and go with every job.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel

from api.backup.differences import PASSING, Difference
from api.store import Document
from api.store.accounts import ACCOUNTS, PLANS, AccountStore
from config.model.fleet_accounts import FleetAccount
from config.model.plans import Plan

NAMED_MAX = 100
"""Accounts of one change that are named one by one; of more of them there is only the number."""

_MODELS: Mapping[str, type[BaseModel]] = {PLANS: Plan, ACCOUNTS: FleetAccount}
_NAMES = {PLANS: "name", ACCOUNTS: "username"}

Digests = Mapping[str, tuple[str, bytes]]
"""By id, the name and the digest of the document."""


AccountDigests = Mapping[str, Digests]
"""What is stored, by collection."""


def read_accounts(store: AccountStore, checked: bool = False) -> AccountDigests:
    """`checked`: read each document as its model, too. Raises `StoreError`, `pydantic.ValidationError`."""
    return {name: dict(_digests(store, name, checked)) for name in _MODELS}


def _digests(store: AccountStore, collection: str, checked: bool) -> Iterator[tuple[str, tuple[str, bytes]]]:
    for document in store.documents(collection):
        if checked:
            _MODELS[collection].model_validate(document.body)
        yield document.id, (document.body[_NAMES[collection]], _digest(document))


def _digest(document: Document) -> bytes:
    lasting = {name: value for name, value in document.body.items() if name not in PASSING}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).digest()


def account_differences(now: AccountDigests, then: AccountDigests) -> Iterator[Difference]:
    """From what is there now to what is in the backup."""
    for collection in _MODELS:
        before, after = now.get(collection, {}), then.get(collection, {})
        yield from _of_change(collection, "added", [name for key, (name, _) in after.items() if key not in before])
        changed = [name for key, (name, digest) in after.items() if key in before and before[key][1] != digest]
        yield from _of_change(collection, "changed", changed)
        yield from _of_change(collection, "removed", [name for key, (name, _) in before.items() if key not in after])


def _of_change(
    collection: str, change: Literal["added", "changed", "removed"], names: list[str]
) -> Iterator[Difference]:
    if len(names) > NAMED_MAX:
        yield Difference(collection, f"{len(names)} of them", change)
        return
    for name in sorted(names):
        yield Difference(collection, name, change)
