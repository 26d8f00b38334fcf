"""The writes of one commit, as statements of SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from api.store.accounts.schema import ACCOUNTS, CREDENTIALS, columns, known
from api.store.interface import NotStored, RevisionConflict, Write

GONE_KEPT = 20_000
"""Deletions that are remembered at least."""


class Batch:
    """The writes of one commit."""

    def __init__(self, database: sqlite3.Connection, revision: int) -> None:
        self._database = database
        self._deleted = False
        self.revision = revision

    def write(self, write: Write, body: str | None) -> int:
        """The number of this step. Raises `RevisionConflict`, `NotStored`."""
        collection = known(write.collection)
        row = self._database.execute(f"SELECT revision FROM {collection} WHERE id = ?", [write.id]).fetchone()  # noqa: S608 - the name is ours
        actual = int(row[0]) if row else 0
        if write.expect is not None and actual != write.expect:
            raise RevisionConflict(collection, write.id, write.expect, actual)
        if write.body is None:
            if not actual:
                raise NotStored(collection, write.id)
            if collection == ACCOUNTS:
                self._end_credentials(write.id)
                self._put_certificates(write.id, ())
            return self._delete(collection, write.id)
        return self._put(collection, write.id, write.body, body)

    def finish(self, horizon: int) -> int:
        """Write the counter, and forget the oldest deletions if there are too many: the step up to which they are."""
        if self._deleted and self._database.execute("SELECT count(*) FROM gone").fetchone()[0] >= 2 * GONE_KEPT:
            (horizon,) = self._database.execute(
                "SELECT revision FROM gone ORDER BY revision DESC LIMIT 1 OFFSET ?", [GONE_KEPT]
            ).fetchone()
            self._database.execute("DELETE FROM gone WHERE revision <= ?", [horizon])
        self._database.execute("UPDATE meta SET revision = ?, horizon = ?", [self.revision, horizon])
        return int(horizon)

    def _put(self, collection: str, identifier: str, body: Mapping[str, Any], text: str | None) -> int:
        self.revision += 1
        values = {"id": identifier, "revision": self.revision, **columns(collection, body), "body": text}
        self._database.execute(
            f"INSERT INTO {collection} ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})"  # noqa: S608 - names are ours
            f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in values)}",
            list(values.values()),
        )
        if collection == ACCOUNTS:
            self._put_certificates(identifier, body.get("certificates", ()))
        return self.revision

    def _put_certificates(self, account_id: str, entries: Sequence[str]) -> None:
        self._database.execute("DELETE FROM certificates WHERE account_id = ?", [account_id])
        for entry in entries:
            self._database.execute("INSERT OR IGNORE INTO certificates VALUES (?, ?)", [entry, account_id])

    def _delete(self, collection: str, identifier: str) -> int:
        self.revision += 1
        self._deleted = True
        self._database.execute(f"DELETE FROM {collection} WHERE id = ?", [identifier])  # noqa: S608 - the name is ours
        self._database.execute("INSERT INTO gone VALUES (?, ?, ?)", [self.revision, collection, identifier])
        return self.revision

    def _end_credentials(self, account_id: str) -> None:
        rows = self._database.execute("SELECT id FROM credentials WHERE account_id = ?", [account_id]).fetchall()
        for (identifier,) in rows:
            self._delete(CREDENTIALS, identifier)
