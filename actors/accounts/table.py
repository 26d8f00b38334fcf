"""The accounts of the fleet as forwarding actors read them: tables of the fleet's file, which the API alone writes.

A row of `accounts`, `plans` and `credentials` has in `packed` what forwarding needs of it (`actors.accounts.records`),
before the document itself, which isn't read here. `accounts_store` has the number of the last commit that changed any
of them, and up to which one deletions are forgotten; in a fleet `loose` has the last changes of credentials.
`api.store.schema` has all tables.

A reader sees the last commit at each look-up, and waits for no writer (WAL). The death of a process at any moment
leaves whole tables.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from actors.accounts.records import (
    AccountRecord,
    CredentialRecord,
    PlanRecord,
    account_of,
    credential_of,
    plan_of,
)

Kind = Literal["account", "plan", "credential"]
Changed = tuple[Kind, str]
"""What changed, and its id."""

Revision = tuple[int, int]
"""The last commit that changed anything, and the last step of what needs no order in a fleet (`api.engine.loose`)."""

CHANGES_MAX = 1_000
"""Of more changes at once no list is made: a follower reads anew what it holds, which is less."""
CACHE = 256
"""KiB of pages that a process holds: the upper ones of all indexes."""

_ACCOUNT = "SELECT packed FROM accounts WHERE id = ?"
_NAMED = "SELECT packed FROM accounts INDEXED BY accounts_by_username WHERE username = ?"
_CERTIFIED = "SELECT packed FROM certificates JOIN accounts ON id = account_id WHERE entry = ? ORDER BY account_id"
_MOST_ROUNDS = "SELECT ifnull(max(rounds), 0) FROM accounts WHERE rounds > 0"
_PLAN = "SELECT packed FROM plans WHERE id = ?"
_CREDENTIAL = "SELECT packed FROM credentials WHERE secret_hash = ?"
_CREDENTIAL_BY_ID = "SELECT packed FROM credentials WHERE id = ?"
_REVISION = "SELECT revision, ifnull((SELECT seq FROM loose_heads WHERE node = ''), 0) FROM accounts_store"
_HORIZON = "SELECT horizon FROM accounts_store"
_CHANGES = """
SELECT 'account', id FROM accounts WHERE revision > ?1
UNION ALL SELECT 'plan', id FROM plans WHERE revision > ?1
UNION ALL SELECT 'credential', id FROM credentials WHERE revision > ?1
UNION ALL SELECT rtrim(collection, 's'), id FROM gone WHERE revision > ?1
UNION ALL SELECT 'credential', id FROM loose WHERE step > ?2 AND collection = 'credentials'
LIMIT ?3
"""

R = TypeVar("R")


class TableError(Exception):
    """The file can't be opened or read: the text says which one and why."""


class AccountTable:
    """The accounts of one file, for one thread. To be opened behind the fork, never before it.

    All that reads raises `TableError`, and `ValueError` or `TypeError` for a row that has no record of this release.
    """

    def __init__(self, path: Path) -> None:
        """Raises `TableError`."""
        self.path = path
        self._inode, self._size = _file_at(path)
        try:
            self._database = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=0, cached_statements=16
            )
        except sqlite3.Error as error:
            raise TableError(f"{path}: {error}") from error
        try:
            self._rows(f"PRAGMA cache_size = -{CACHE}")
            self._rows(_REVISION)
        except BaseException:
            self.close()
            raise

    @property
    def replaced(self) -> bool:
        """Whether another file has taken its place, or it was cut short; one that was removed is read as it was."""
        inode, size = _file_at(self.path)
        if not inode:
            return False
        before, self._size = self._size, size
        return inode != self._inode or size < before

    @property
    def revision(self) -> Revision:
        """The last commit that changed an account, a plan or a credential, and the last step; 0 for none."""
        ((revision, step),) = self._rows(_REVISION)
        return int(revision), int(step)

    def account(self, identifier: str) -> AccountRecord | None:
        """The account, or None."""
        return self._one(account_of, _ACCOUNT, identifier)

    def accounts_named(self, username: str) -> list[AccountRecord]:
        """All accounts with this user name; for any one proxy there is at most one."""
        return [account_of(data) for (data,) in self._rows(_NAMED, username)]

    def accounts_certified(self, entry: str) -> list[AccountRecord]:
        """All accounts with this entry for certificates; for any one proxy there is at most one."""
        return [account_of(data) for (data,) in self._rows(_CERTIFIED, entry)]

    def most_rounds(self) -> int:
        """The rounds of bcrypt that a wrong password of an account costs at most; 0 when all have hashes of our own."""
        ((rounds,),) = self._rows(_MOST_ROUNDS)
        return int(rounds)

    def plan(self, identifier: str) -> PlanRecord | None:
        """The plan, or None."""
        return self._one(plan_of, _PLAN, identifier)

    def credential(self, digest: bytes) -> CredentialRecord | None:
        """The credential whose secret has this SHA-256, or None."""
        return self._one(credential_of, _CREDENTIAL, digest.hex())

    def credential_by_id(self, identifier: str) -> CredentialRecord | None:
        """The credential, or None."""
        return self._one(credential_of, _CREDENTIAL_BY_ID, identifier)

    def changes(self, since: Revision) -> set[Changed] | None:
        """What changed after this revision; None when that is not known, or too much: everything may have."""
        found = self._rows(_CHANGES, *since, CHANGES_MAX + 1)
        ((horizon,),) = self._rows(_HORIZON)  # behind the changes: what was forgotten before they were read shows
        return None if since[0] < horizon or len(found) > CHANGES_MAX else set(found)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _one(self, made: Callable[[bytes], R], sql: str, key: str) -> R | None:
        found = self._rows(sql, key)
        return made(found[0][0]) if found else None

    def _rows(self, sql: str, *values: str | int) -> list[Any]:
        try:
            return self._database.execute(sql, values).fetchall()
        except UnicodeEncodeError:
            return []  # what a client sends needn't be UTF-8, and all that is stored is
        except sqlite3.Error as error:
            raise TableError(f"{self.path}: {error}") from error


def _file_at(path: Path) -> tuple[int, int]:
    """Inode and size; 0 when there is no such file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_size


def digest_of(secret: str) -> bytes:
    """What a credential is found by: its secret has entropy enough for a plain hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
