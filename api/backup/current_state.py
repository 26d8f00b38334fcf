"""The state that a restore would replace, read with the lock held; nothing is written, and damage is tolerated."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from actors.sqlite import open_for_reading
from api.audit import Broken, verify
from api.audit.trail import trail_file
from api.backup.accounts import AccountDigests, read_accounts
from api.backup.differences import bodies_of
from api.history.tables import last_number
from api.store import StoreError, migration, migrations, open_store
from config.files.data_format import NAME, DataFormatError
from config.files.paths import DataDir


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The bodies of the store by collection and id, and its last step; the key files by name; the audit trail's head.

    What can't be read counts as missing, since a restore may be meant to repair just that.
    """

    bodies: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    revision: int = 0
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    audit_head: str | None = None
    last_revision: int = 0
    """Of the configuration (`api.history`)."""
    accounts: AccountDigests = field(default_factory=AccountDigests)


def read_current_state(data: DataDir, scratch: Path) -> CurrentState:
    """The state of `data`. Copies are made in the new folder `scratch`. Raises `OSError`."""
    keys = (
        {path.name: path.read_bytes() for path in data.keys.iterdir() if path.is_file()} if data.keys.is_dir() else {}
    )
    bodies, revision, accounts = _stored_documents(data, DataDir(scratch))
    return CurrentState(bodies, revision, keys, audit_head(data), _last_revision(data), accounts)


def _stored_documents(data: DataDir, copy: DataDir) -> tuple[dict[str, Any], int, AccountDigests]:
    """Read from a copy, since opening a store completes an interrupted change and sets damaged files aside."""
    if not data.store.is_dir():
        return {}, 0, AccountDigests()
    copy.path.mkdir(mode=0o700)
    try:
        shutil.copytree(data.store, copy.store)
        if (data.path / NAME).is_file():
            shutil.copyfile(data.path / NAME, copy.path / NAME)
        migration.bring_up_to_date(copy, migrations.STEPS)
        store = open_store(copy)
    except (DataFormatError, StoreError, shutil.Error):
        return {}, 0, AccountDigests()
    try:
        return dict(bodies_of(store)), store.revision, _accounts(copy)
    finally:
        store.close()


def _accounts(copy: DataDir) -> AccountDigests:
    try:
        return read_accounts(copy)
    except StoreError:
        return AccountDigests()


def _last_revision(data: DataDir) -> int:
    try:
        with closing(open_for_reading(trail_file(data), alone=True)) as database:
            return last_number(database)
    except sqlite3.Error:
        return 0  # a release without a history, or damage


def audit_head(data: DataDir) -> str | None:
    """The last row of the trail, as `audit verify` prints it; None when there is no whole trail."""
    try:
        found = verify(data, alone=True)
    except (StoreError, sqlite3.Error):
        return None
    return None if isinstance(found, Broken) else f"{found.seq}:{found.hash}"
