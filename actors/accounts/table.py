"""The table of accounts: an LMDB file that the API writes and every forwarding actor maps into its memory.

Databases of the file: `accounts`, `plans` by id; `names` has the ids of the accounts with a user name, by a digest of
the name, and `certificates` those with an entry for certificates of clients; `credentials` are by the SHA-256 of their
secret, `credential_keys` has that by id; `changes` lists what changed, by revision; `meta` says whose table it is.
Values are msgpack arrays of `records`.

The revision is that of the accounts' store after the last commit that is in the table. A reader sees the last commit at
each look-up, without a system call, for 2 µs or so. `changes` keeps the last commits; a follower that was away for
longer asks for everything it holds anew.

A commit is written, not synced: the store is what is durable. The death of a process at any moment leaves a whole
table. A power cut may not, so a table is of one boot (`config.files.accounts_table`). `table_writer` has the writer.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import lmdb
import msgpack

from actors.accounts.records import AccountRecord, CredentialRecord, PlanRecord, Rules
from config.files.accounts_table import boot_id

VERSION = 6
"""Of the records; a table of another version is made anew."""
MAP_SIZE = 16 * 2**30
"""Address space, not memory: the file grows as it is filled."""
READERS_MAX = 4096
"""Processes and threads that read at the same time."""

Kind = Literal["account", "plan", "credential"]
Changed = tuple[Kind, str]
"""What changed, and its id."""

DATABASES = ("meta", "accounts", "names", "certificates", "plans", "credentials", "credential_keys", "changes")
META_KEY = b"table"
ROUNDS_KEY = b"rounds"
"""In `meta`: by rounds of bcrypt, where they are more than ours, the number of accounts whose password costs them."""


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


def table_error(path: Path, error: lmdb.Error) -> TableError:
    """An error of LMDB as one of ours."""
    kind = TableDamaged if isinstance(error, _DAMAGE) else TableError
    return kind(f"{path}: {error}")


class TableMeta(NamedTuple):
    """`store` is the id of the store that the table is derived from, `revision` the last commit that is in it."""

    version: int
    store: str
    revision: int


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
                max_dbs=len(DATABASES),
            )
            self._inode, self._size = _file_at(path)
            if self._size < self._used():
                self._env.close()
                raise TableDamaged(f"{path}: was cut short")
            self._databases = {name: self._open(name, writable) for name in DATABASES}
        except lmdb.Error as error:
            raise table_error(path, error) from error

    @property
    def removed(self) -> bool:
        """Whether there is no file any more: what was opened can be read as it was."""
        return not _file_at(self.path)[0]

    @property
    def replaced(self) -> bool:
        """Whether the file was removed or cut short, or another one has taken its place: it is to be opened again.

        Reading what was cut off would end the process (SIGBUS).
        """
        inode, size = _file_at(self.path)
        if inode == self._inode and size >= self._size:
            self._size = size
            return False
        return True

    def _used(self) -> int:
        """Bytes that the pages of the last commit take."""
        pages: int = self._env.info()["last_pgno"] + 1
        page_size: int = self._env.stat()["psize"]
        return pages * page_size

    def _open(self, name: str, writable: bool) -> Any:
        return self._env.open_db(name.encode(), create=writable)

    def meta(self) -> TableMeta | None:
        """Whose table it is; None while nothing was written."""
        found = self._get("meta", META_KEY)
        return None if found is None else TableMeta._make(found)

    @property
    def revision(self) -> int:
        """The last commit that is in the table, 0 for none."""
        meta = self.meta()
        return 0 if meta is None else meta.revision

    def account(self, identifier: str) -> AccountRecord | None:
        """The account, or None. Raises `TableError`, as all that read."""
        found = self._get("accounts", identifier.encode())
        return None if found is None else read_account(found)

    def accounts_named(self, username: str) -> list[AccountRecord]:
        """All accounts with this user name; for any one proxy there is at most one."""
        ids = self._get("names", name_key(username)) or ()
        found = (self.account(each) for each in ids)
        return [each for each in found if each is not None and each.username == username]

    def accounts_certified(self, entry: str) -> list[AccountRecord]:
        """All accounts with this entry for certificates; for any one proxy there is at most one."""
        ids = self._get("certificates", name_key(entry)) or ()
        found = (self.account(each) for each in ids)
        return [each for each in found if each is not None and entry in each.certificates]

    def most_rounds(self) -> int:
        """The rounds of bcrypt that a wrong password of an account costs at most; 0 when all have hashes of our own."""
        return max(self._get("meta", ROUNDS_KEY) or (), default=0)

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
            raise table_error(self.path, error) from error

    def _get(self, database: str, key: bytes) -> Any:
        try:
            with self._env.begin(db=self._databases[database]) as transaction:
                found = transaction.get(key)
        except lmdb.Error as error:
            raise table_error(self.path, error) from error
        return None if found is None else unpack(found)

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


def _file_at(path: Path) -> tuple[int, int]:
    """Inode and size; 0 when there is no such file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_size


def digest_of(secret: str) -> bytes:
    """The key of a credential: its secret has entropy enough for a plain hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def name_key(text: str) -> bytes:
    """The key of a user name or an entry for certificates, which may be longer than a key."""
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()


def pack(value: Any) -> bytes:
    """A value as it is stored."""
    packed = msgpack.packb(value)
    assert isinstance(packed, bytes)
    return packed


def unpack(data: bytes) -> Any:
    """The inverse of `pack`; arrays are tuples."""
    return msgpack.unpackb(data, use_list=False, strict_map_key=False)


def read_account(values: tuple[Any, ...]) -> AccountRecord:
    """The record of an account from what is stored. Raises `TypeError` for an array of another length."""
    account = AccountRecord._make(values)
    return account._replace(rules=Rules._make(account.rules))


def _plan(values: tuple[Any, ...]) -> PlanRecord:
    plan = PlanRecord._make(values)
    return plan._replace(rules=Rules._make(plan.rules))


def _changed(value: bytes) -> Changed:
    kind, identifier = unpack(value)
    return kind, identifier
