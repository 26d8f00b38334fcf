"""The writer of the table of accounts, and what it writes: the changes of each commit, in one transaction."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

import lmdb

from actors.accounts.records import AccountRecord, CredentialRecord, PlanRecord
from actors.accounts.table import (
    DATABASES,
    META_KEY,
    ROUNDS_KEY,
    VERSION,
    Changed,
    Kind,
    Table,
    TableDamaged,
    TableError,
    TableMeta,
    name_key,
    pack,
    read_account,
    table_error,
    unpack,
)
from config.files.accounts_table import lock_of
from config.passwords import COST, rounds_of

log = logging.getLogger(__name__)

READERS_CHECKED = 60.0
"""Seconds between two checks for readers that were killed."""
CHANGES_KEPT = 20_000
"""Entries of the list of changes."""


class PutAccount(NamedTuple):
    """An account is new or has changed."""

    account: AccountRecord


class PutPacked(NamedTuple):
    """A new account whose value `packed` has made before."""

    id: str
    username: str
    value: bytes


class PutPlan(NamedTuple):
    """A plan is new or has changed."""

    plan: PlanRecord


class PutCredential(NamedTuple):
    """A credential is new. `digest` is the SHA-256 of its secret."""

    credential: CredentialRecord
    digest: bytes


class Remove(NamedTuple):
    """Something is gone; what the table doesn't have is removed already."""

    kind: Kind
    id: str


TableChange = PutAccount | PutPacked | PutPlan | PutCredential | Remove


def packed(account: AccountRecord) -> PutPacked | None:
    """A new account for the table; None if it has to be entered under more than its name."""
    if account.certificates or rounds_of(account.password_hash) > 1 << COST:
        return None
    return PutPacked(account.id, account.username, pack(account))


class TableWriter(Table):
    """The table in the API, its only writer."""

    def __init__(self, path: Path) -> None:
        """Raises `TableError`."""
        super().__init__(path, writable=True)
        self._readers_checked = -READERS_CHECKED

    @classmethod
    def open(cls, path: Path) -> Self:
        """The table, or an empty one in place of a file that is damaged. Raises `TableError`."""
        if not path.exists():
            discard(path)  # a lock without its table has places of readers of another one
        try:
            table = cls(path)
            meta = table.meta()
            if meta is None or meta.version == VERSION:
                return table
            table.close()
            log.info("making %s anew: it is of another version", path)
        except TableDamaged as error:
            log.warning("making the table of accounts anew: %s", error)
        except TypeError as error:  # an array of another length
            log.warning("making the table of accounts anew: %s: %s", path, error)
        discard(path)
        return cls(path)

    def apply(self, changes: Iterable[TableChange], store: str, revision: int) -> None:
        """Write the changes of the commits up to `revision`, all or none. Raises `TableError`."""
        self._write(changes, store, revision, anew=False)

    def rebuild(self, changes: Iterable[TableChange], store: str, revision: int) -> None:
        """Make the whole table anew; readers have the former one until it is whole. Raises `TableError`."""
        self._write(changes, store, revision, anew=True)

    def _write(self, changes: Iterable[TableChange], store: str, revision: int, *, anew: bool) -> None:
        try:
            self._drop_dead_readers()
            with self._env.begin(write=True) as transaction:
                if anew:
                    for name in DATABASES:
                        transaction.drop(self._databases[name], delete=False)
                batch = _Batch(transaction, self._databases)
                for change in changes:
                    batch.apply(change)
                batch.note(revision, anew=anew)
                meta = TableMeta(VERSION, store, revision)
                transaction.put(META_KEY, pack(meta), db=self._databases["meta"])
            size, self._size = self.path.stat().st_size, self._used()
            if size < self._size:  # LMDB does not write pages at the end that it has freed again
                os.truncate(self.path, self._size)
        except lmdb.Error as error:
            raise table_error(self.path, error) from error
        except OSError as error:
            raise TableError(f"{self.path}: {error.strerror}") from error

    def _drop_dead_readers(self) -> None:
        """Free the places of readers that were killed: the pages that one was reading would never be used again."""
        now = time.monotonic()
        if now - self._readers_checked >= READERS_CHECKED:
            self._readers_checked = now
            self._env.reader_check()


class _Batch:
    """The changes of one transaction."""

    def __init__(self, transaction: Any, databases: dict[str, Any]) -> None:
        self._transaction = transaction
        self._databases = databases
        self._changed: dict[Changed, None] = {}
        self._rounds: Counter[int] = Counter(self._get("meta", ROUNDS_KEY))

    def apply(self, change: TableChange) -> None:
        if isinstance(change, PutAccount):
            self._put_account(change.account)
            self._changed["account", change.account.id] = None
        elif isinstance(change, PutPacked):
            self._enter("names", change.username, change.id, present=True)
            self._transaction.put(change.id.encode(), change.value, db=self._databases["accounts"])
            self._changed["account", change.id] = None
        elif isinstance(change, PutPlan):
            self._put("plans", change.plan.id.encode(), change.plan)
            self._changed["plan", change.plan.id] = None
        elif isinstance(change, PutCredential):
            self._put("credentials", change.digest, change.credential)
            self._put("credential_keys", change.credential.id.encode(), change.digest)
            self._changed["credential", change.credential.id] = None
        else:
            self._remove(change)
            self._changed[change.kind, change.id] = None

    def _put_account(self, account: AccountRecord) -> None:
        found = self._get("accounts", account.id.encode())
        before = None if found is None else read_account(found)
        self._reindex("names", account.id, _names(before), _names(account))
        self._reindex("certificates", account.id, _entries(before), account.certificates)
        self._count_rounds(before, account)
        self._put("accounts", account.id.encode(), account)

    def _reindex(self, database: str, identifier: str, before: Collection[str], after: Collection[str]) -> None:
        """Enter an account under the texts that are new, and remove it from those that are gone."""
        for text in before:
            if text not in after:
                self._enter(database, text, identifier, present=False)
        for text in after:
            if text not in before:
                self._enter(database, text, identifier, present=True)

    def _enter(self, database: str, text: str, identifier: str, *, present: bool) -> None:
        key = name_key(text)
        ids = [each for each in self._get(database, key) or () if each != identifier]
        if present:
            ids.append(identifier)
        if ids:
            self._put(database, key, ids)
        else:
            self._transaction.delete(key, db=self._databases[database])

    def _remove(self, change: Remove) -> None:
        key = change.id.encode()
        if change.kind == "account":
            found = self._get("accounts", key)
            before = None if found is None else read_account(found)
            self._reindex("names", change.id, _names(before), ())
            self._reindex("certificates", change.id, _entries(before), ())
            self._count_rounds(before, None)
            self._transaction.delete(key, db=self._databases["accounts"])
        elif change.kind == "plan":
            self._transaction.delete(key, db=self._databases["plans"])
        else:
            digest = self._get("credential_keys", key)
            if digest is not None:
                self._transaction.delete(digest, db=self._databases["credentials"])
            self._transaction.delete(key, db=self._databases["credential_keys"])

    def _count_rounds(self, before: AccountRecord | None, after: AccountRecord | None) -> None:
        for account, change in ((before, -1), (after, 1)):
            rounds = 0 if account is None else rounds_of(account.password_hash)
            if rounds > 1 << COST:
                self._rounds[rounds] += change

    def note(self, revision: int, *, anew: bool) -> None:
        """List the changes; of a table made anew, or too many to list, none, and followers take everything anew."""
        self._put("meta", ROUNDS_KEY, dict(+self._rounds))
        database = self._databases["changes"]
        if anew or len(self._changed) > CHANGES_KEPT:
            self._transaction.drop(database, delete=False)
            self._transaction.put(revision.to_bytes(8, "big") + bytes(4), pack(("account", "")), db=database)
            return
        for index, changed in enumerate(self._changed):
            key = revision.to_bytes(8, "big") + index.to_bytes(4, "big")
            self._transaction.put(key, pack(changed), db=database)
        surplus = self._transaction.stat(database)["entries"] - CHANGES_KEPT
        with self._transaction.cursor(database) as cursor:
            while surplus > 0 and cursor.first():
                cursor.delete()
                surplus -= 1

    def _get(self, database: str, key: bytes) -> Any:
        found = self._transaction.get(key, db=self._databases[database])
        return None if found is None else unpack(found)

    def _put(self, database: str, key: bytes, value: Any) -> None:
        self._transaction.put(key, pack(value), db=self._databases[database])


def discard(path: Path) -> None:
    """Remove the table and its lock, if they are there."""
    for each in (path, lock_of(path)):
        each.unlink(missing_ok=True)


def _names(account: AccountRecord | None) -> tuple[str, ...]:
    return () if account is None else (account.username,)


def _entries(account: AccountRecord | None) -> tuple[str, ...]:
    return () if account is None else account.certificates
