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
from api.backup.accounts import AccountDigests, read_accounts
from api.backup.differences import bodies_of
from api.history.recorder import newest_revision
from api.store import StoreError, open_store
from api.store.fleet_file import newest_number
from config.files.data_format import DataFormatError, require_own_format
from config.files.paths import DataDir


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The bodies of documents by collection and id, and the number of the last commit; the key files by name; the
    audit trail's head; the last revision (`api.history`).

    What can't be read counts as missing, since a restore may be meant to repair just that.
    """

    bodies: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    accounts: AccountDigests = field(default_factory=dict)
    number: int = 0
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    audit_head: str | None = None
    last_revision: int = 0


def read_current_state(data: DataDir, scratch: Path) -> CurrentState:
    """The state of `data`. Copies are made in the new folder `scratch`. Raises `OSError`."""
    keys = (
        {path.name: path.read_bytes() for path in data.keys.iterdir() if path.is_file()} if data.keys.is_dir() else {}
    )
    if not data.fleet.is_file():
        return CurrentState(keys=keys)
    copy = DataDir(scratch)  # since opening brings the log into the file
    copy.path.mkdir(mode=0o700)
    for file in data.path.glob(f"{data.fleet.name}*"):
        shutil.copy(file, copy.path)
    bodies, accounts = _documents(data, copy)
    return CurrentState(bodies, accounts, newest_number(copy.fleet), keys, audit_head(copy), _last_revision(copy))


def _documents(data: DataDir, copy: DataDir) -> tuple[dict[str, Any], AccountDigests]:
    try:
        require_own_format(data.path)
        with closing(open_store(copy)) as store:
            return dict(bodies_of(store)), read_accounts(store.accounts)
    except (DataFormatError, StoreError):
        return {}, {}


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
