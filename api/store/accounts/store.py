"""Accounts, plans and credentials in their tables, read and written.

The file's one connection writes, in its transactions; another one reads what the last commit left, while the next may
be written. Forwarding actors read the rows themselves (`actors.accounts.table`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from api.store.accounts.columns import ACCOUNTS, NAMED_POLICIES, PLANS, columns, known
from api.store.accounts.pages import BY_FIGURE, AccountSelection, Clash, Position, Sort, clash_sql, named_like_sql
from api.store.accounts.staging import Staging
from api.store.accounts.usage_order import NeverUsed, figures_of, positions_by_figure
from api.store.fleet_file import FleetFile, ReadingConnection
from api.store.interface import Change, Document, Predicate
from config.files.paths import DataDir


class AccountEnd(NamedTuple):
    """An account expires, or has; `expires_at` is Unix seconds."""

    account_id: str
    username: str
    expires_at: float


GONE_KEPT = 20_000
"""Deletions that are remembered at least."""


class AccountStore:
    """The collections `accounts`, `plans` and `credentials`. Thread-safe; one per file.

    The deletion of an account removes its credentials, too.
    """

    def __init__(self, file: FleetFile, data: DataDir) -> None:
        """Raises `StoreError`."""
        self._file = file
        self._temporary = data.temporary
        self._usage = data.usage
        self._never_used = NeverUsed()
        with file.reading() as database:
            self._revision = int(database.execute("SELECT revision FROM accounts_store").fetchone()[0])
        self._reading = ReadingConnection(file.path)

    @property
    def revision(self) -> int:
        """The number of the last commit that changed one of them."""
        return self._revision

    @property
    def horizon(self) -> int:
        """Deletions up to this commit are forgotten; all of what a restore has replaced are."""
        return int(self._rows("SELECT horizon FROM accounts_store", [])[0][0])

    def get(self, collection: str, identifier: str) -> Document | None:
        """See `Store.get`."""
        return self._one(collection, "id", identifier)

    def revision_of(self, collection: str, identifier: str) -> int:
        """See `Store.revision_of`."""
        rows = self._rows(f"SELECT revision FROM {known(collection)} WHERE id = ?", [identifier])  # noqa: S608 - the name is ours
        return int(rows[0][0]) if rows else 0

    def every(self, collection: str) -> list[Document]:
        """See `Store.every`."""
        return self.find(collection)

    def find(self, collection: str, where: Predicate | None = None, **fields: Any) -> list[Document]:
        """See `Store.find`. Reads the whole collection, so it is for plans, and for tests."""
        return [
            each
            for each in self._documents(f"SELECT id, revision, body FROM {known(collection)} ORDER BY revision", [])  # noqa: S608 - as above
            if all(each.body.get(name) == value for name, value in fields.items())
            and (where is None or where(each.body))
        ]

    def accounts_named(self, username: str) -> list[Document]:
        """The accounts with this user name."""
        return self._documents("SELECT id, revision, body FROM accounts WHERE username = ?", [username])

    def accounts_named_like(self, q: str, limit: int) -> list[tuple[str, str, str]]:
        """Id, user name and searched text (its lines in lower case, the name first) of accounts that have `q` in it.

        At most `limit` of any, those first whose name begins with it. Reads an index of all accounts.
        """
        found = dict.fromkeys(row for sql, values in named_like_sql(q, limit) for row in self._rows(sql, values))
        return list(found)[:limit]

    def accounts_certified(self, entry: str) -> list[Document]:
        """The accounts with this entry for certificates."""
        return self._documents(
            "SELECT id, revision, body FROM accounts WHERE id IN (SELECT account_id FROM certificates WHERE entry = ?)",
            [entry],
        )

    def plan_named(self, name: str) -> Document | None:
        """The plan with this name, or None."""
        return self._one(PLANS, "name", name)

    def plan_users(self, plan_id: str) -> int:
        """The number of accounts with this plan."""
        return int(self._rows("SELECT count(*) FROM accounts WHERE plan = ?", [plan_id])[0][0])

    def users_by_plan(self) -> dict[str, int]:
        """The number of accounts by the id of their plan."""
        return dict(self._rows("SELECT plan, count(*) FROM accounts WHERE plan > '' GROUP BY plan", []))

    def named_policies(self) -> list[str]:
        """The names of policies that plans and accounts have."""
        return [name for (name,) in self._rows(NAMED_POLICIES, [])]

    def users_by_policy(self) -> dict[str, int]:
        """The number of accounts by the name of the policy that they have themselves."""
        policy = "json_extract(body, '$.policy')"
        return dict(self._rows(f"SELECT {policy}, count(*) FROM accounts WHERE {policy} IS NOT NULL GROUP BY 1", []))  # noqa: S608 - the text is ours

    def list_entries(self, collection: str) -> Iterator[tuple[str, str]]:
        """The entries that name lists, of accounts or credentials, with the id of each. Reads the whole collection."""
        found = self._rows(
            f"SELECT found.id, entry.value FROM {known(collection)} AS found,"  # noqa: S608 - as above
            """ json_each('["allow_destinations", "deny_destinations"]') AS side,"""
            " json_each(found.body, '$.' || side.value) AS entry"
            """ WHERE (instr(found.body, '"list:') OR instr(found.body, '"geo:')) AND entry.type = 'text'""",
            [],
        )
        yield from found

    def with_policy(self, name: str) -> Iterator[Document]:
        """The accounts that have this policy themselves."""
        found = self._rows("SELECT id, revision, body FROM accounts WHERE json_extract(body, '$.policy') = ?", [name])
        return (Document(identifier, revision, json.loads(body)) for identifier, revision, body in found)

    def quoting(self, collection: str, name: str) -> Iterator[Document]:
        """The documents with a text that is `name`, or begins with it and a colon. Reads the whole collection."""
        found = self._rows(
            f"SELECT id, revision, body FROM {known(collection)} WHERE instr(body, ?) OR instr(body, ?)",  # noqa: S608 - as above
            [f'"{name}"', f'"{name}:'],
        )
        return (Document(identifier, revision, json.loads(body)) for identifier, revision, body in found)

    def count(self, collection: str) -> int:
        """The number of documents."""
        return int(self._rows(f"SELECT count(*) FROM {known(collection)}", [])[0][0])  # noqa: S608 - as above

    def account_page(
        self, selection: AccountSelection, after: Position | None, limit: int
    ) -> tuple[list[Document], Position | None]:
        """At most `limit` accounts behind the position, and where the next page begins, if there is one."""
        found, following = self.account_places(selection, after, limit)
        return [document for document, _ in found], following

    def account_places(
        self, selection: AccountSelection, after: Position | None, limit: int
    ) -> tuple[list[tuple[Document, Position]], Position | None]:
        """As `account_page`, with the position of each. Raises `sqlite3.Error` in an order of `BY_FIGURE`."""
        if selection.sort in BY_FIGURE:
            rows = positions_by_figure(self._file.path, self._usage, selection, after, limit + 1, self._never_used)
        else:
            rows = self._rows(*selection.page_sql(after, limit + 1))
        places = {identifier: (value, identifier) for value, identifier in rows[:limit]}
        found = self._with_ids(ACCOUNTS, list(places))
        following = (rows[limit - 1][0], rows[limit - 1][1]) if len(rows) > limit else None
        return [(each, places[each.id]) for each in found], following

    def figures(self, sort: Sort, identifiers: Sequence[str]) -> dict[str, Any]:
        """What is sorted by in an order of `BY_FIGURE`, of any accounts, by id. Raises `sqlite3.Error`."""
        return figures_of(self._usage, sort, identifiers)

    def credentials_of(self, account_id: str, after: Position | None = None, limit: int = 100) -> list[Document]:
        """The credentials of an account, oldest first, behind a position (`created_at`, `id`)."""
        return self._documents(
            "SELECT id, revision, body FROM credentials WHERE account_id = ? AND (created_at, id) > (?, ?)"
            " ORDER BY created_at, id LIMIT ?",
            [account_id, *(after or (0.0, "")), limit],
        )

    def credential_count(self, account_id: str) -> int:
        """The number of credentials of an account."""
        return int(self._rows("SELECT count(*) FROM credentials WHERE account_id = ?", [account_id])[0][0])

    def expired_credentials(self, before: float, limit: int) -> list[Document]:
        """Credentials that expired before this moment (Unix seconds)."""
        return self._documents(
            "SELECT id, revision, body FROM credentials WHERE expires_at < ? LIMIT ?", [before, limit]
        )

    def due_ends(self, now: float, limit: int) -> list[AccountEnd]:
        """Ends of accounts, up to this moment (Unix seconds), that were not announced yet, oldest first."""
        rows = self._rows(
            "SELECT account_id, username, ends.expires_at FROM ends JOIN accounts ON id = account_id"
            " WHERE ends.expires_at <= ? ORDER BY ends.expires_at LIMIT ?",
            [now, limit],
        )
        return [AccountEnd(*row) for row in rows]

    def clash(
        self, what: Clash, proxy_id: str, proxy_tags: Sequence[str], without: Collection[str] = ()
    ) -> tuple[str, str, str] | None:
        """What two accounts of this proxy both have, and their ids; None when there is nothing."""
        rows = self._rows(*clash_sql(what, proxy_id, proxy_tags, without))
        return (str(rows[0][0]), str(rows[0][1]), str(rows[0][2])) if rows else None

    def last_change(self) -> int:
        """The last step that changed an account or a plan, 0 for none: credentials don't count."""
        rows = self._rows(
            "SELECT max(revision) FROM (SELECT max(revision) AS revision FROM accounts"
            " UNION ALL SELECT max(revision) FROM plans"
            " UNION ALL SELECT max(revision) FROM gone WHERE collection <> 'credentials')",
            [],
        )
        return rows[0][0] or 0

    def documents(self, collection: str, batch: int = 500) -> Iterator[Document]:
        """All documents by their ids, read in batches while others may write."""
        last = ""
        while True:
            found = self._documents(
                f"SELECT id, revision, body FROM {known(collection)} WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608 - as above
                [last, batch],
            )
            yield from found
            if len(found) < batch:
                return
            last = found[-1].id

    def close(self) -> None:
        """End reading."""
        self._reading.close()

    # --- writing ---

    def take(self, changes: Sequence[Change]) -> None:
        """Make these changes, within the transaction that has their numbers."""
        with self._file.transaction() as database:
            batch = _Writes(database, max(each.revision for each in changes))
            batch.take(changes)
            batch.finish()
            if batch.number > 0:
                self._file.after(lambda: self._committed(batch.number))

    def begin_anew(self, number: int) -> None:
        """The file is at this commit, and its followers read everything."""
        self._committed(number)

    @staticmethod
    def ended_with(database: sqlite3.Connection, account_id: str) -> dict[str, Document | None]:
        """The credentials that end with an account, as the writer sees them."""
        rows = database.execute("SELECT id, revision, body FROM credentials WHERE account_id = ?", [account_id])
        return {identifier: Document(identifier, revision, json.loads(body)) for identifier, revision, body in rows}

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

    def _committed(self, number: int) -> None:
        self._revision = number

    def _one(self, collection: str, column: str, value: str) -> Document | None:
        found = self._documents(
            f"SELECT id, revision, body FROM {known(collection)} WHERE {column} = ?",  # noqa: S608 - as above
            [value],
        )
        return found[0] if found else None

    def _with_ids(self, collection: str, identifiers: Sequence[str]) -> list[Document]:
        """In this order, without those that are gone."""
        marks = ", ".join("?" * len(identifiers))
        found = self._documents(
            f"SELECT id, revision, body FROM {collection} WHERE id IN ({marks})",  # noqa: S608 - as above
            list(identifiers),
        )
        by_id = {each.id: each for each in found}
        return [by_id[each] for each in identifiers if each in by_id]

    def _documents(self, sql: str, values: Sequence[Any]) -> list[Document]:
        return [
            Document(identifier, revision, json.loads(body)) for identifier, revision, body in self._rows(sql, values)
        ]

    def _rows(self, sql: str, values: Sequence[Any]) -> list[Any]:
        with self._reading() as database:
            return database.execute(sql, values).fetchall()


class _Writes:
    """Writes of a transaction; `number` is that of its last commit, negative when none of them is of one."""

    def __init__(self, database: sqlite3.Connection, number: int) -> None:
        self._database = database
        self._deleted = False
        self.number = number

    def take(self, changes: Sequence[Change]) -> None:
        """Credentials that end with their account are changes of their own. What is gone goes first."""
        for each in changes:
            if each.body is None:
                self._delete(each)
        written = [(each, each.body) for each in changes if each.body is not None]
        for collection in dict.fromkeys(each.collection for each, _ in written):
            self._put(known(collection), [each for each in written if each[0].collection == collection])

    def _delete(self, change: Change) -> None:
        collection = known(change.collection)
        if collection == ACCOUNTS:
            self._database.execute("DELETE FROM certificates WHERE account_id = ?", [change.id])
        self._database.execute(f"DELETE FROM {collection} WHERE id = ?", [change.id])  # noqa: S608 - the name is ours
        if change.revision < 0:
            return  # `loose` says that it is gone
        self._deleted = True
        self._database.execute("REPLACE INTO gone VALUES (?, ?, ?)", [collection, change.id, change.revision])

    def finish(self) -> None:
        """Forget the oldest deletions if there are too many."""
        if self.number > 0:
            _note_number(self._database, self.number)
        if self._deleted and self._database.execute("SELECT count(*) FROM gone").fetchone()[0] >= 2 * GONE_KEPT:
            (horizon,) = self._database.execute(
                "SELECT revision FROM gone ORDER BY revision DESC LIMIT 1 OFFSET ?", [GONE_KEPT]
            ).fetchone()
            self._database.execute("DELETE FROM gone WHERE revision <= ?", [horizon])
            self._database.execute("UPDATE accounts_store SET horizon = ?", [horizon])

    def _put(self, collection: str, changes: Sequence[tuple[Change, Mapping[str, Any]]]) -> None:
        rows = [
            {"id": each.id, "revision": each.revision, **columns(collection, body), "body": text_of(body)}
            for each, body in changes
        ]
        names = [*rows[0]]
        self._database.executemany(
            f"INSERT INTO {collection} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608 - names are ours
            f" ON CONFLICT (id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in names)}",
            ([*each.values()] for each in rows),
        )
        ids = [(each.id,) for each, _ in changes]
        self._database.executemany(f"DELETE FROM gone WHERE collection = '{collection}' AND id = ?", ids)  # noqa: S608 - as above
        if collection == ACCOUNTS:
            self._database.executemany("DELETE FROM certificates WHERE account_id = ?", ids)
            entries = ((entry, each.id) for each, body in changes for entry in body.get("certificates", ()))
            self._database.executemany("INSERT OR IGNORE INTO certificates VALUES (?, ?)", entries)


def text_of(body: Mapping[str, Any]) -> str:
    """A document as it is stored."""
    return json.dumps(body, separators=(",", ":"))


def _note_number(database: sqlite3.Connection, number: int) -> None:
    """The reader of accounts asks for this alone to know whether anything has changed."""
    database.execute("UPDATE accounts_store SET revision = ?", [number])
