"""The table of accounts: an LMDB file that the API writes and every forwarding actor maps into its memory.

Databases of the file: `accounts`, `plans` by id; `names` has the ids of the accounts with a user name, by a digest of
the name, and `certificates` those with an entry for certificates of clients; `credentials` are by the SHA-256 of their
secret, `credential_keys` has that by id; `changes` lists what changed, by revision; `meta` says whose table it is.
Values are msgpack arrays of `records`.

The revision is that of the accounts' store after the last commit that is in the table. A reader sees the last commit at
each look-up, without a system call, for 2 µs or so. `changes` keeps the last commits; a follower that was away for
longer asks for everything it holds anew.

A commit is written, not synced: the store is what is durable. The death of a process at any moment leaves a whole
table. A power cut may not, so a table is of one boot (`config.files.accounts_table`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import lmdb
import msgpack

from actors.accounts.records import AccountRecord, CredentialRecord, PlanRecord, Rules
from config.files.accounts_table import boot_id, lock_of

log = logging.getLogger(__name__)

VERSION = 2
"""Of the records; a table of another version is made anew."""
MAP_SIZE = 16 * 2**30
"""Address space, not memory: the file grows as it is filled."""
READERS_MAX = 4096
"""Processes and threads that read at the same time."""
READERS_CHECKED = 60.0
"""Seconds between two checks for readers that were killed."""
CHANGES_KEPT = 20_000
"""Entries of the list of changes."""

Kind = Literal["account", "plan", "credential"]
Changed = tuple[Kind, str]
"""What changed, and its id."""

_DATABASES = ("meta", "accounts", "names", "certificates", "plans", "credentials", "credential_keys", "changes")
_META = b"table"


class TableError(Exception):
    """The table can't be opened, read or written: the text says which file and why."""


class TableDamaged(TableError):
    """The file is none of LMDB, or was altered: it is to be made anew."""


_DAMAGE = (
    lmdb.CorruptedError,
    lmdb.InvalidError,
    lmdb.MapResizedError,  # of a file of ours alone a page number is beyond the map
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)


def _error(path: Path, error: lmdb.Error) -> TableError:
    kind = TableDamaged if isinstance(error, _DAMAGE) else TableError
    return kind(f"{path}: {error}")


class TableMeta(NamedTuple):
    """`store` is the id of the store that the table is derived from, `revision` the last commit that is in it."""

    version: int
    store: str
    revision: int


class PutAccount(NamedTuple):
    """An account is new or has changed."""

    account: AccountRecord


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


TableChange = PutAccount | PutPlan | PutCredential | Remove


class Table:
    """What can be read, by the writer and by readers. A process opens a file once, so it is one of the two."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        try:
            self._env = lmdb.open(
                str(path),
                map_size=MAP_SIZE,
                subdir=False,
                readonly=not writable,
                create=writable,
                sync=writable and boot_id() is None,
                metasync=False,
                mode=0o600,
                max_readers=READERS_MAX,
                max_dbs=len(_DATABASES),
            )
            self._databases = {name: self._open(name, writable) for name in _DATABASES}
        except lmdb.Error as error:
            raise _error(path, error) from error
        self._inode = _inode(path)

    @property
    def replaced(self) -> bool:
        """Whether the file was removed, or another one has taken its place: it is to be opened again."""
        return _inode(self.path) != self._inode

    def _open(self, name: str, writable: bool) -> Any:
        return self._env.open_db(name.encode(), create=writable)

    def meta(self) -> TableMeta | None:
        """Whose table it is; None while nothing was written."""
        found = self._get("meta", _META)
        return None if found is None else TableMeta._make(found)

    @property
    def revision(self) -> int:
        """The last commit that is in the table, 0 for none."""
        meta = self.meta()
        return 0 if meta is None else meta.revision

    def account(self, identifier: str) -> AccountRecord | None:
        """The account, or None. Raises `TableError`, as all that read."""
        found = self._get("accounts", identifier.encode())
        return None if found is None else _account(found)

    def accounts_named(self, username: str) -> list[AccountRecord]:
        """All accounts with this user name; for any one proxy there is at most one."""
        ids = self._get("names", _name_key(username)) or ()
        found = (self.account(each) for each in ids)
        return [each for each in found if each is not None and each.username == username]

    def accounts_certified(self, entry: str) -> list[AccountRecord]:
        """All accounts with this entry for certificates; for any one proxy there is at most one."""
        ids = self._get("certificates", _name_key(entry)) or ()
        found = (self.account(each) for each in ids)
        return [each for each in found if each is not None and entry in each.certificates]

    def plan(self, identifier: str) -> PlanRecord | None:
        """The plan, or None."""
        found = self._get("plans", identifier.encode())
        return None if found is None else _plan(found)

    def credential(self, digest: bytes) -> CredentialRecord | None:
        """The credential whose secret has this SHA-256, or None."""
        found = self._get("credentials", digest)
        return None if found is None else CredentialRecord._make(found)

    def credential_by_id(self, identifier: str) -> CredentialRecord | None:
        """The credential, or None."""
        digest = self._get("credential_keys", identifier.encode())
        return None if digest is None else self.credential(digest)

    def changes(self, since: int) -> set[Changed] | None:
        """What changed after this revision; None when that is no longer known, and everything may have."""
        try:
            with self._env.begin(db=self._databases["changes"]) as transaction, transaction.cursor() as cursor:
                if not cursor.first():
                    return set()
                if int.from_bytes(cursor.key()[:8], "big") > since:
                    return None
                if not cursor.set_range((since + 1).to_bytes(8, "big")):
                    return set()
                return {_changed(value) for value in cursor.iternext(keys=False)}
        except lmdb.Error as error:
            raise _error(self.path, error) from error

    def _get(self, database: str, key: bytes) -> Any:
        try:
            with self._env.begin(db=self._databases[database]) as transaction:
                found = transaction.get(key)
        except lmdb.Error as error:
            raise _error(self.path, error) from error
        return None if found is None else _unpack(found)

    def close(self) -> None:
        """Unmap the file."""
        self._env.close()


class TableReader(Table):
    """The table in a process that only reads. To be opened behind the fork, never before it."""

    def __init__(self, path: Path) -> None:
        """Raises `TableError`; also while there is no table yet."""
        if not path.exists():
            raise TableError(f"{path}: is not there yet; the API makes it anew after a boot of the machine")
        super().__init__(path, writable=False)


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
                    for name in _DATABASES:
                        transaction.drop(self._databases[name], delete=False)
                batch = _Batch(transaction, self._databases)
                for change in changes:
                    batch.apply(change)
                batch.note(revision, anew=anew)
                meta = TableMeta(VERSION, store, revision)
                transaction.put(_META, _pack(meta), db=self._databases["meta"])
        except lmdb.Error as error:
            raise _error(self.path, error) from error

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

    def apply(self, change: TableChange) -> None:
        if isinstance(change, PutAccount):
            self._put_account(change.account)
            self._changed["account", change.account.id] = None
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
        before = None if found is None else _account(found)
        self._reindex("names", account.id, _names(before), _names(account))
        self._reindex("certificates", account.id, _entries(before), account.certificates)
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
        key = _name_key(text)
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
            before = None if found is None else _account(found)
            self._reindex("names", change.id, _names(before), ())
            self._reindex("certificates", change.id, _entries(before), ())
            self._transaction.delete(key, db=self._databases["accounts"])
        elif change.kind == "plan":
            self._transaction.delete(key, db=self._databases["plans"])
        else:
            digest = self._get("credential_keys", key)
            if digest is not None:
                self._transaction.delete(digest, db=self._databases["credentials"])
            self._transaction.delete(key, db=self._databases["credential_keys"])

    def note(self, revision: int, *, anew: bool) -> None:
        """List the changes; of a table made anew, or too many to list, none, and followers take everything anew."""
        database = self._databases["changes"]
        if anew or len(self._changed) > CHANGES_KEPT:
            self._transaction.drop(database, delete=False)
            self._transaction.put(revision.to_bytes(8, "big") + bytes(4), _pack(("account", "")), db=database)
            return
        for index, changed in enumerate(self._changed):
            key = revision.to_bytes(8, "big") + index.to_bytes(4, "big")
            self._transaction.put(key, _pack(changed), db=database)
        surplus = self._transaction.stat(database)["entries"] - CHANGES_KEPT
        with self._transaction.cursor(database) as cursor:
            while surplus > 0 and cursor.first():
                cursor.delete()
                surplus -= 1

    def _get(self, database: str, key: bytes) -> Any:
        found = self._transaction.get(key, db=self._databases[database])
        return None if found is None else _unpack(found)

    def _put(self, database: str, key: bytes, value: Any) -> None:
        self._transaction.put(key, _pack(value), db=self._databases[database])


def discard(path: Path) -> None:
    """Remove the table and its lock, if they are there."""
    for each in (path, lock_of(path)):
        each.unlink(missing_ok=True)


def _inode(path: Path) -> int:
    """0 when there is no such file."""
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return 0


def digest_of(secret: str) -> bytes:
    """The key of a credential: its secret has entropy enough for a plain hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def _names(account: AccountRecord | None) -> tuple[str, ...]:
    return () if account is None else (account.username,)


def _entries(account: AccountRecord | None) -> tuple[str, ...]:
    return () if account is None else account.certificates


def _name_key(text: str) -> bytes:
    """A user name, or an entry for certificates, may be longer than a key."""
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def _pack(value: Any) -> bytes:
    packed = msgpack.packb(value)
    assert isinstance(packed, bytes)
    return packed


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, use_list=False)


def _account(values: tuple[Any, ...]) -> AccountRecord:
    account = AccountRecord._make(values)
    return account._replace(rules=Rules._make(account.rules))


def _plan(values: tuple[Any, ...]) -> PlanRecord:
    plan = PlanRecord._make(values)
    return plan._replace(rules=Rules._make(plan.rules))


def _changed(value: bytes) -> Changed:
    kind, identifier = _unpack(value)
    return kind, identifier
