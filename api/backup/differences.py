"""What a restore would change: names of resources, and of the fields that differ. No values, so no secrets either.

The state of now is read with the lock held; nothing is written, and damage is tolerated. Metrics and the outbox of
webhooks always differ, since time goes on, and are not reported; nor is the audit trail, unless there is no whole one
now. Credentials are restored with their accounts and are not compared: they come and go with every job.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from actors.sqlite import open_for_reading
from api.audit.trail import Broken, verify
from api.history.recorder import newest_revision
from api.objects.kinds import KINDS
from api.store import FleetStore, StoreError, open_store
from api.store.accounts.columns import TABLES
from api.store.fleet_file import newest_number
from config.files.data_format import DataFormatError, require_own_format
from config.files.paths import DataDir

COLLECTIONS = (*(name for name in (*KINDS, "api_keys", "settings") if name not in TABLES), "plans", "accounts")
PASSING = frozenset(("created_at", "updated_at", "last_login", "last_used"))
NAMED_MAX = 100
"""Accounts of one change that are named one by one; of more of them there is only the number."""

Change = Literal["added", "changed", "removed"]


Digests = Mapping[str, tuple[str, bytes]]
"""By id the name of a document and a digest of what lasts: there may be hundreds of thousands."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`added` is what only the backup has, `removed` what only is there now."""

    kind: str
    name: str
    change: Change
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The state that a restore would replace: the number of the last commit, the key files by name, the audit trail's
    head, the last revision (`api.history`), digests of documents by collection and id, and a copy of the configuration.

    What can't be read counts as missing, since a restore may be meant to repair just that.
    """

    number: int = 0
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    audit_head: str | None = None
    last_revision: int = 0
    documents: Mapping[str, Digests] = field(default_factory=dict)
    copy: DataDir | None = None


def read_current_state(data: DataDir, scratch: Path) -> CurrentState:
    """The state of `data`. Copies are made in the new folder `scratch`. Raises `OSError`."""
    keys = key_files(data)
    if not data.fleet.is_file():
        return CurrentState(keys=keys)
    copy = DataDir(scratch)  # since opening brings the log into the file
    copy.path.mkdir(mode=0o700)
    for file in data.path.glob(f"{data.fleet.name}*"):
        shutil.copy(file, copy.path)
    known = newest_number(copy.fleet), keys, audit_head(copy), _last_revision(copy)
    try:
        require_own_format(data.path)
        with closing(open_store(copy)) as store:
            return CurrentState(*known, {name: dict(_digests(store, name)) for name in COLLECTIONS}, copy)
    except (DataFormatError, StoreError, ValueError):
        return CurrentState(*known)


def key_files(data: DataDir) -> dict[str, bytes]:
    """The content of the key files, by name."""
    files = data.keys.iterdir() if data.keys.is_dir() else ()
    return {path.name: path.read_bytes() for path in files if path.is_file()}


def _last_revision(data: DataDir) -> int:
    try:
        with closing(open_for_reading(data.fleet, alone=True)) as database:
            return newest_revision(database)
    except sqlite3.Error:
        return 0  # damage


def audit_head(data: DataDir) -> str | None:
    """The last row of the trail, as `audit verify` prints it; None when there is no whole trail."""
    try:
        found = verify(data, alone=True)
    except (StoreError, sqlite3.Error):
        return None
    return None if isinstance(found, Broken) else f"{found.seq}:{found.hash}"


def differences(now: CurrentState, store: FleetStore, keys: Mapping[str, bytes]) -> Iterator[Difference]:
    """From what is there now to the `store` and the `keys` of the backup. Raises `StoreError`."""
    with ExitStack() as stack:
        present = None if now.copy is None else stack.enter_context(closing(open_store(now.copy)))
        for collection in COLLECTIONS:
            yield from _of_collection(collection, now.documents.get(collection, {}), present, store)
    for change, names in _compared(now.keys, keys):
        yield from (Difference("keys", name, change) for name in sorted(names))
    if now.audit_head is None:
        yield Difference("audit", "trail", "added")


def _compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[Change, list[str]]]:
    yield "added", [key for key in after if key not in before]
    yield "changed", [key for key in after if key in before and before[key] != after[key]]
    yield "removed", [key for key in before if key not in after]


def _of_collection(collection: str, before: Digests, now: FleetStore | None, then: FleetStore) -> Iterator[Difference]:
    after: Digests = dict(_digests(then, collection))
    for change, keys in _compared(before, after):
        if collection in TABLES and len(keys) > NAMED_MAX:
            yield Difference(collection, f"{len(keys)} of them", change)
            continue
        for name, key in sorted(((after if key in after else before)[key][0], key) for key in keys):
            yield Difference(collection, name, change, _fields(now, then, collection, key))


def _digests(store: FleetStore, collection: str) -> Iterator[tuple[str, tuple[str, bytes]]]:
    found = store.accounts.documents(collection) if collection in TABLES else store.every(collection)
    for document in found:
        body = document.body
        lasting = json.dumps({name: value for name, value in body.items() if name not in PASSING}, sort_keys=True)
        name = str(body.get("name") or body.get("username") or document.id)
        yield document.id, (name, hashlib.sha256(lasting.encode()).digest())


def _fields(now: FleetStore | None, then: FleetStore, collection: str, key: str) -> tuple[str, ...]:
    """Of a document that has changed. Accounts are only named."""
    found = [None if store is None or collection in TABLES else store.get(collection, key) for store in (now, then)]
    if None in found:
        return ()
    old, new = (each.body for each in found if each is not None)
    names = dict.fromkeys((*new, *old))
    return tuple(name for name in names if name not in PASSING and old.get(name) != new.get(name))
