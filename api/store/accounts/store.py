"""Writing accounts, plans and credentials.

The file's one connection writes, in its transactions; another reads what the last commit left
(`api.store.accounts.reading`). Forwarding actors read the rows themselves (`actors.accounts.table`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from api.store.accounts.columns import ACCOUNTS, CREDENTIALS, columns, known
from api.store.accounts.reading import AccountEnd, AccountReader
from api.store.accounts.staging import Staging
from api.store.fleet_file import FleetFile
from api.store.interface import Change, NotStored, RevisionConflict, Write
from config.files.paths import DataDir

GONE_KEPT = 20_000
"""Deletions that are remembered at least."""


class AccountStore(AccountReader):
    """The `Store` of the collections `accounts`, `plans` and `credentials`. Thread-safe; one per file.

    The deletion of an account removes its credentials, too.
    """

    def __init__(self, file: FleetFile, data: DataDir) -> None:
        """Raises `StoreError`."""
        self._file = file
        self._temporary = data.temporary
        with file.reading() as database:
            self._revision = int(database.execute("SELECT revision FROM accounts_store").fetchone()[0])
        super().__init__(file.path, data.usage)

    @property
    def revision(self) -> int:
        """The number of the last commit that changed one of them."""
        return self._revision

    @property
    def horizon(self) -> int:
        """Deletions up to this commit are forgotten; all of what a restore has replaced are."""
        return int(self._rows("SELECT horizon FROM accounts_store", [])[0][0])

    # --- writing ---

    def commit(self, writes: Sequence[Write]) -> int:
        """See `Store.commit`."""
        bodies = [None if each.body is None else text_of(each.body) for each in writes]
        with self._file.transaction(sum(len(body) for body in bodies if body is not None)) as database:
            batch = _Writes(database, self._file.number())
            for each in zip(writes, bodies, strict=True):
                batch.write(*each)
            return self._finish(batch)

    def adopt(self, changes: Sequence[Change]) -> None:
        """Make the changes of a commit that was made elsewhere, within the transaction that has its number."""
        with self._file.transaction() as database:
            batch = _Writes(database, self._file.number())
            for each in changes:
                batch.adopt(each)
            self._finish(batch)

    def staging(self) -> Staging:
        """For accounts that are to be stored in one commit and are too many for memory; to be closed by the caller."""
        return Staging(self._file.path, self._temporary)

    def commit_staged(self, staged: Staging, also: Callable[[sqlite3.Connection], None]) -> int:
        """Make all changes of `staged`, and what `also` does with them as `staged`, or none of them.

        Raises as `commit`.
        """
        with staged.attached(self._file), self._file.transaction(staged.size) as database:
            number = self._file.number()
            staged.merge(database, number)
            also(database)
            _note_number(database, number)
            self._file.after(lambda: self._committed(number))
            return number

    def ends_announced(self, ends: Iterable[AccountEnd]) -> None:
        """These were announced. It has no number. Raises `StoreWriteError`."""
        with self._file.transaction() as database:
            database.executemany(
                "DELETE FROM ends WHERE account_id = ? AND expires_at = ?",
                [(each.account_id, each.expires_at) for each in ends],
            )

    # --- inside ---

    def _finish(self, batch: _Writes) -> int:
        batch.finish()
        self._file.after(lambda: self._committed(batch.number))
        return batch.number

    def _committed(self, number: int) -> None:
        self._revision = number


class _Writes:
    """The writes of one commit; `number` is its number."""

    def __init__(self, database: sqlite3.Connection, number: int) -> None:
        self._database = database
        self._deleted = False
        self.number = number

    def write(self, write: Write, body: str | None) -> None:
        """Raises `RevisionConflict`, `NotStored`."""
        collection = known(write.collection)
        row = self._database.execute(f"SELECT revision FROM {collection} WHERE id = ?", [write.id]).fetchone()  # noqa: S608 - the name is ours
        actual = int(row[0]) if row else 0
        if write.expect is not None and actual != write.expect:
            raise RevisionConflict(collection, write.id, write.expect, actual)
        if write.body is not None:
            self._put(collection, write.id, write.body, body)
            return
        if not actual:
            raise NotStored(collection, write.id)
        if collection == ACCOUNTS:
            self._end_credentials(write.id)
            self._put_certificates(write.id, ())
        self._delete(collection, write.id)

    def adopt(self, change: Change) -> None:
        """Without a question; credentials that ended with their account are changes of their own."""
        collection = known(change.collection)
        if change.body is not None:
            self._put(collection, change.id, change.body, text_of(change.body))
            return
        if collection == ACCOUNTS:
            self._put_certificates(change.id, ())
        self._delete(collection, change.id)

    def finish(self) -> None:
        """Forget the oldest deletions if there are too many."""
        _note_number(self._database, self.number)
        if self._deleted and self._database.execute("SELECT count(*) FROM gone").fetchone()[0] >= 2 * GONE_KEPT:
            (horizon,) = self._database.execute(
                "SELECT revision FROM gone ORDER BY revision DESC LIMIT 1 OFFSET ?", [GONE_KEPT]
            ).fetchone()
            self._database.execute("DELETE FROM gone WHERE revision <= ?", [horizon])
            self._database.execute("UPDATE accounts_store SET horizon = ?", [horizon])

    def _put(self, collection: str, identifier: str, body: Mapping[str, Any], text: str | None) -> None:
        values = {"id": identifier, "revision": self.number, **columns(collection, body), "body": text}
        self._database.execute(
            f"INSERT INTO {collection} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"  # noqa: S608 - names are ours
            f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in values)}",
            list(values.values()),
        )
        self._database.execute("DELETE FROM gone WHERE collection = ? AND id = ?", [collection, identifier])
        if collection == ACCOUNTS:
            self._put_certificates(identifier, body.get("certificates", ()))

    def _put_certificates(self, account_id: str, entries: Sequence[str]) -> None:
        self._database.execute("DELETE FROM certificates WHERE account_id = ?", [account_id])
        for entry in entries:
            self._database.execute("INSERT OR IGNORE INTO certificates VALUES (?, ?)", [entry, account_id])

    def _delete(self, collection: str, identifier: str) -> None:
        self._deleted = True
        self._database.execute(f"DELETE FROM {collection} WHERE id = ?", [identifier])  # noqa: S608 - the name is ours
        self._database.execute("REPLACE INTO gone VALUES (?, ?, ?)", [collection, identifier, self.number])

    def _end_credentials(self, account_id: str) -> None:
        rows = self._database.execute("SELECT id FROM credentials WHERE account_id = ?", [account_id]).fetchall()
        for (identifier,) in rows:
            self._delete(CREDENTIALS, identifier)


def text_of(body: Mapping[str, Any]) -> str:
    """A document as it is stored."""
    return json.dumps(body, separators=(",", ":"))


def _note_number(database: sqlite3.Connection, number: int) -> None:
    """The reader of accounts asks for this alone to know whether anything has changed."""
    database.execute("UPDATE accounts_store SET revision = ?", [number])
