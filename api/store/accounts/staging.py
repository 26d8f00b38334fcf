"""Accounts that are to be stored in one commit, in a file until then: a hundred thousand of them don't fit into memory.

The file also has what the commit adds to the audit trail and the history, since that takes long to make: so the commit
itself copies rows. It is in the folder of temporary files, only good for the process that made it.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from api.store.accounts.columns import ACCOUNTS, columns
from api.store.fleet_file import FleetFile, translated
from api.store.interface import RevisionConflict, Write
from config.files.paths import private_directory

READ = 500
"""Accounts that are read at once."""
_PREFIX, _SUFFIX = "importing-", ".sqlite"
_COLUMNS = ("username", "created_at", "plan", "enabled", "expires_at", "search", "marks", "rounds", "packed", "body")
_SCHEMA = f"""
PRAGMA journal_mode=OFF;
PRAGMA synchronous=OFF;
CREATE TABLE accounts (
    step INTEGER PRIMARY KEY, line INTEGER NOT NULL, id TEXT NOT NULL UNIQUE, expect INTEGER NOT NULL,
    {", ".join(_COLUMNS)}
);
CREATE TABLE certificates (entry TEXT NOT NULL, account_id TEXT NOT NULL, PRIMARY KEY (entry, account_id))
    WITHOUT ROWID;
CREATE TABLE entries (place INTEGER PRIMARY KEY, before TEXT NOT NULL, after TEXT NOT NULL);
CREATE TABLE changes (
    place INTEGER PRIMARY KEY, collection TEXT NOT NULL, id TEXT NOT NULL, name TEXT, fields TEXT NOT NULL,
    before BLOB, after BLOB
);
BEGIN;
"""
"""`entries` are of the audit trail, in two parts (`api.audit.trail.Trail.parts`); `changes` of a revision."""
_MEETING_NAMES = """
SELECT username FROM accounts GROUP BY username HAVING count(*) > 1
UNION
SELECT username FROM accounts AS staged WHERE EXISTS (
    SELECT 1 FROM store.accounts AS stored
    WHERE stored.username = staged.username AND stored.id NOT IN (SELECT id FROM accounts)
)
"""
_MEETING_ENTRIES = """
SELECT entry FROM certificates GROUP BY entry HAVING count(*) > 1
UNION
SELECT entry FROM certificates AS staged WHERE EXISTS (
    SELECT 1 FROM store.certificates AS stored
    WHERE stored.entry = staged.entry AND stored.account_id NOT IN (SELECT id FROM accounts)
)
"""
_CONFLICT = """
SELECT new.id, expect, ifnull(old.revision, 0)
FROM accounts AS new LEFT JOIN store.accounts AS old ON old.id = new.id
WHERE ifnull(old.revision, 0) <> expect LIMIT 1
"""


ChangeRow = tuple[str, str, str | None, str, bytes | None, bytes | None]
"""Of `changes`, without its place."""


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """Those of a revision, read each time that they are iterated over."""

    database: sqlite3.Connection

    def __iter__(self) -> Iterator[ChangeRow]:
        return self.database.execute("SELECT collection, id, name, fields, before, after FROM changes ORDER BY place")


class Staged(NamedTuple):
    """An account that is to be stored, and the line that it comes from."""

    line: int
    body: dict[str, Any]


class Staging:
    """The accounts of one change. For one thread. Raises `StoreError`."""

    def __init__(self, store: Path, folder: Path) -> None:
        """`store` is the file of the fleet, `folder` where the file is made."""
        self._store = store
        self._file = folder / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        self.count = self.size = 0
        """Documents, and the bytes of all that is staged."""
        with translated(self._file):
            private_directory(folder)
            self._file.touch(0o600)
            self._database = sqlite3.connect(self._file, isolation_level=None)
            self._database.executescript(_SCHEMA)

    def add(self, line: int, write: Write) -> None:
        """A new or changed account, of this line."""
        assert write.body is not None
        text = json.dumps(write.body, separators=(",", ":"))
        self.count += 1
        self.size += len(text)
        found = {**columns(ACCOUNTS, write.body), "body": text}
        values = [line, write.id, write.expect or 0, *(found[name] for name in _COLUMNS)]
        with translated(self._file):
            marks = ", ".join("?" * len(values))
            self._database.execute(f"INSERT INTO accounts VALUES (NULL, {marks})", values)  # noqa: S608 - marks alone
            for entry in write.body.get("certificates", ()):
                self._database.execute("INSERT OR IGNORE INTO certificates VALUES (?, ?)", [entry, write.id])

    def finish(self) -> None:
        """All are added: now they can be read."""
        with translated(self._file):
            self._database.execute("CREATE INDEX accounts_by_name ON accounts (username)")
            self._database.execute("COMMIT")
            self._database.execute("ATTACH ? AS store", [str(self._store)])

    def add_records(self, entries: Iterable[tuple[str, str]], changes: Iterable[ChangeRow]) -> None:
        """More of what the commit adds to the audit trail, and to the history."""
        texts, rows = list(entries), list(changes)
        self.size += sum(len(before) + len(after) for before, after in texts)
        self.size += sum(len(part or "") for row in rows for part in row)
        with translated(self._file):
            self._database.executemany("INSERT INTO entries VALUES (NULL, ?, ?)", texts)
            self._database.executemany("INSERT INTO changes VALUES (NULL, ?, ?, ?, ?, ?, ?)", rows)

    def writes(self) -> Iterator[list[Write]]:
        """All of them in their order, many at once."""
        last = 0
        while rows := self._rows(
            "SELECT step, id, expect, body FROM accounts WHERE step > ? ORDER BY step LIMIT ?", [last, READ]
        ):
            yield [Write(ACCOUNTS, identifier, json.loads(body), expect) for _, identifier, expect, body in rows]
            last = rows[-1][0]

    def documents(self) -> Generator[tuple[str, str, str], None, None]:
        """Collection, id and text of all, by their ids: so indexes of them are written in order. To be closed."""
        return self._each("SELECT ?, id, body FROM accounts ORDER BY id", ACCOUNTS)

    def entries(self) -> Generator[tuple[str, str], None, None]:
        """What the commit adds to the audit trail, in its order. To be closed."""
        return self._each("SELECT before, after FROM entries ORDER BY place")

    @property
    def changes(self) -> StagedChanges:
        """What it adds to the history, in its order."""
        return StagedChanges(self._database)

    def require_current(self) -> None:
        """Raise `RevisionConflict` if one of the accounts has changed since it was prepared."""
        if found := self._rows(_CONFLICT, []):
            raise RevisionConflict(ACCOUNTS, *found[0])

    def plans(self) -> list[tuple[str, int]]:
        """The ids of their plans, with a line of each."""
        return self._rows("SELECT plan, min(line) FROM accounts WHERE plan > '' GROUP BY plan", [])

    def __contains__(self, account_id: object) -> bool:
        return bool(self._rows("SELECT 1 FROM accounts WHERE id = ?", [account_id]))

    def meeting_names(self, others: Collection[str]) -> list[str]:
        """User names that several accounts would have, or one of these and one of `others`."""
        found = {str(name) for (name,) in self._rows(_MEETING_NAMES, [])}
        if others:
            with translated(self._file):
                every = self._database.execute("SELECT DISTINCT username FROM accounts")
                found.update(name for (name,) in every if name in others)
        return sorted(found)

    def meeting_entries(self) -> list[str]:
        """Entries for certificates that several accounts would have."""
        return [str(entry) for (entry,) in self._rows(_MEETING_ENTRIES, [])]

    def named(self, username: str) -> list[Staged]:
        """Those with this user name."""
        return self._staged("SELECT line, body FROM accounts WHERE username = ? ORDER BY step", username)

    def certified(self, entry: str) -> list[Staged]:
        """Those with this entry for certificates."""
        own = "(SELECT account_id FROM certificates WHERE entry = ?)"
        return self._staged(f"SELECT line, body FROM accounts WHERE id IN {own} ORDER BY step", entry)  # noqa: S608 - ours

    @contextmanager
    def attached(self, file: FleetFile) -> Iterator[None]:
        """The writer can read all of it within the block, as `staged`, and has memory for many changes."""
        with file.with_memory() as database:
            database.execute("ATTACH ? AS staged", [str(self._file)])
            try:
                yield
            finally:
                database.execute("DETACH staged")

    def merge(self, database: sqlite3.Connection, number: int) -> None:
        """Store all of them with this number, within `attached` and a transaction. Raises `RevisionConflict`."""
        self.require_current()
        names = ("id", "revision", *_COLUMNS)
        database.execute(
            f"INSERT INTO main.accounts ({', '.join(names)})"  # noqa: S608 - names are ours
            f" SELECT id, ?, {', '.join(_COLUMNS)} FROM staged.accounts WHERE 1 ORDER BY step"
            f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names)}",
            [number],
        )
        database.execute(
            "DELETE FROM main.certificates WHERE account_id IN (SELECT id FROM staged.accounts WHERE expect > 0)"
        )
        database.execute("INSERT INTO main.certificates SELECT entry, account_id FROM staged.certificates WHERE 1")

    def close(self) -> None:
        """Remove the file."""
        self._database.close()
        self._file.unlink(missing_ok=True)

    def _staged(self, sql: str, value: str) -> list[Staged]:
        return [Staged(line, json.loads(body)) for line, body in self._rows(sql, [value])]

    def _each(self, sql: str, *values: str) -> Generator[Any, None, None]:
        with translated(self._file), closing(self._database.execute(sql, values)) as rows:
            yield from rows

    def _rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        with translated(self._file):
            return self._database.execute(sql, values).fetchall()
