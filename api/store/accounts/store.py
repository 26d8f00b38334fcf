"""Reading and writing the file of accounts, plans and credentials.

One connection writes, under a lock; another reads what the last commit left. Every commit is synced before it returns
(WAL with `synchronous=FULL`) and is in the table of forwarding actors then, too (`api.store.accounts.publication`).
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from actors.sqlite import FileTooNew, open_database, open_for_reading, transaction
from api.store.accounts.pages import BY_FIGURE, AccountSelection, Position, certificate_clash_sql, clash_sql
from api.store.accounts.publication import NotPublished, Published, Retry
from api.store.accounts.schema import (
    ACCOUNTS,
    CREDENTIALS,
    PLANS,
    SCHEMA,
    TABLES,
    accounts_file,
    columns,
)
from api.store.accounts.usage_order import positions_by_figure
from api.store.interface import (
    Change,
    Document,
    HistoryPruned,
    NotInEffect,
    NotStored,
    Predicate,
    RevisionConflict,
    Store,
    StoreDamaged,
    StoreError,
    StoreTooNew,
    StoreWriteError,
    Write,
)
from config.files.paths import DataDir, PathError

log = logging.getLogger(__name__)

GONE_KEPT = 20_000
"""Deletions that are remembered at least."""
SPARE = 2**20
"""Bytes that a commit leaves free on the disk, beside four times its own size: the file and the table need them."""
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class AccountEnd(NamedTuple):
    """An account expires, or has; `expires_at` is Unix seconds."""

    account_id: str
    username: str
    expires_at: float


class AccountStore:
    """The `Store` of the collections `accounts`, `plans` and `credentials`. Thread-safe; one per data directory.

    The deletion of an account removes its credentials, too, each as a step of its own.
    """

    def __init__(self, data: DataDir, publish: bool = True) -> None:
        """Open the file, or make it; with `publish`, bring the table up to date. Raises `StoreError`."""
        self._file = accounts_file(data)
        self._usage = data.usage
        self._writing = threading.RLock()
        self._reading = threading.Lock()
        self._stepped = threading.Condition()
        with _translated(self._file):
            self._database = open_database(self._file, SCHEMA, any_thread=True)
            self._database.execute("PRAGMA synchronous=FULL")
            _check(self._database, self._file)
            self.id, self._revision, self._horizon = _meta(self._database)
            self._reader = sqlite3.connect(self._file, isolation_level=None, check_same_thread=False)
            self._reader.execute("PRAGMA query_only=1")
        self._pending: Sequence[Write] = ()
        self._published = Published(data, self.id) if publish else None
        self._retry = Retry(self._publish)
        self._publish_or_retry()

    # --- reading ---

    @property
    def revision(self) -> int:
        """The number of the last step."""
        return self._revision

    def get(self, collection: str, identifier: str) -> Document | None:
        """See `Store.get`."""
        return self._one(collection, "id", identifier)

    def revision_of(self, collection: str, identifier: str) -> int:
        """See `Store.revision_of`."""
        rows = self._rows(f"SELECT revision FROM {_known(collection)} WHERE id = ?", [identifier])  # noqa: S608 - the name is ours
        return int(rows[0][0]) if rows else 0

    def find(self, collection: str, where: Predicate | None = None, **fields: Any) -> list[Document]:
        """See `Store.find`. Reads the whole collection, so it is for plans, and for tests."""
        return [
            each
            for each in self._documents(f"SELECT id, revision, body FROM {_known(collection)} ORDER BY revision", [])  # noqa: S608 - as above
            if all(each.body.get(name) == value for name, value in fields.items())
            and (where is None or where(each.body))
        ]

    def accounts_named(self, username: str) -> list[Document]:
        """The accounts with this user name."""
        return self._documents("SELECT id, revision, body FROM accounts WHERE username = ?", [username])

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

    def count(self, collection: str) -> int:
        """The number of documents."""
        return int(self._rows(f"SELECT count(*) FROM {_known(collection)}", [])[0][0])  # noqa: S608 - as above

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
            rows = positions_by_figure(self._file, self._usage, selection, after, limit + 1)
        else:
            rows = self._rows(*selection.page_sql(after, limit + 1))
        places = {identifier: (value, identifier) for value, identifier in rows[:limit]}
        found = self._with_ids(ACCOUNTS, list(places))
        following = (rows[limit - 1][0], rows[limit - 1][1]) if len(rows) > limit else None
        return [(each, places[each.id]) for each in found], following

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

    def lapsed_credentials(self, before: float, limit: int) -> list[Document]:
        """Credentials that lapsed before this moment (Unix seconds)."""
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

    def ends_announced(self, ends: Iterable[AccountEnd]) -> None:
        """These were announced. It is no step of the store. Raises `StoreWriteError`."""
        with self._writing, _translated(self._file), transaction(self._database):
            self._database.executemany(
                "DELETE FROM ends WHERE account_id = ? AND expires_at = ?",
                [(each.account_id, each.expires_at) for each in ends],
            )

    def clash(
        self, proxy_id: str, proxy_tags: Sequence[str], without: Collection[str] = ()
    ) -> tuple[str, str, str] | None:
        """A user name that two accounts of this proxy have, and their ids; None when there is none."""
        rows = self._rows(*clash_sql(proxy_id, proxy_tags, without))
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

    def certificate_clash(
        self, proxy_id: str, proxy_tags: Sequence[str], without: Collection[str] = ()
    ) -> tuple[str, str, str] | None:
        """An entry for certificates that two accounts of this proxy have, and their ids; None when there is none."""
        rows = self._rows(*certificate_clash_sql(proxy_id, proxy_tags, without))
        return (str(rows[0][0]), str(rows[0][1]), str(rows[0][2])) if rows else None

    def documents(self, collection: str, batch: int = 500) -> Iterator[Document]:
        """All documents by their ids, read in batches while others may write."""
        last = ""
        while True:
            found = self._documents(
                f"SELECT id, revision, body FROM {_known(collection)} WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608 - as above
                [last, batch],
            )
            yield from found
            if len(found) < batch:
                return
            last = found[-1].id

    def changes(self, since: int) -> list[Change]:
        """See `Store.changes`."""
        with self._reading, _translated(self._file):
            return _changes_since(self._reader, since)

    def wait(self, since: int, timeout: float) -> int:
        """See `Store.wait`."""
        deadline = time.monotonic() + timeout
        with self._stepped:
            while self._revision <= since and (left := deadline - time.monotonic()) > 0:
                self._stepped.wait(left)
            return self._revision

    def check(self) -> None:
        """See `Store.check`."""
        self._rows("SELECT revision FROM meta", [])

    # --- writing ---

    def put(self, collection: str, document: Mapping[str, Any], expect: int | None = None) -> Document:
        """See `Store.put`."""
        (revision,) = self.commit([Write(collection, document["id"], document, expect)])
        return Document(document["id"], revision, dict(document))

    def delete(self, collection: str, identifier: str, expect: int | None = None) -> int:
        """See `Store.delete`."""
        return self.commit([Write(collection, identifier, None, expect)])[0]

    @contextmanager
    def together(self, writes: Sequence[Write], other: Store, first: Write | None) -> Iterator[None]:
        """Make these changes together with those that the block commits to `other` in one step.

        `first` is one of the latter, None if there are none. The changes are prepared on the disk before the block and
        made behind it. A start after a crash between finds by the document of `first` whether the block did its part,
        and completes the change or forgets it (`complete`). Raises as `commit`.
        """
        if not writes:
            yield
            return
        with self._writing:
            if first is not None:
                self._prepare(writes, first, other)
            try:
                yield
            except BaseException:
                self._forget_prepared()
                raise
            self._pending = writes
            self._make_pending()

    def complete(self, other: Store) -> None:
        """At the start: make changes that were prepared, if `other` has its part of them. Raises as `commit`."""
        row = self._rows("SELECT collection, id, revision, writes FROM prepared", [])
        if not row:
            return
        ((collection, identifier, before, writes),) = row
        if other.revision_of(collection, identifier) == before:
            self._forget_prepared()
            return
        log.warning("%s: a change that was cut off in its middle is completed", self._file)
        self._pending = [Write(*each) for each in json.loads(writes)]
        self._make_pending()

    def commit(self, writes: Sequence[Write]) -> list[int]:
        """See `Store.commit`. Raises `NotInEffect`, too: the changes are made, and the table gets them later."""
        bodies = [None if each.body is None else json.dumps(each.body, separators=(",", ":")) for each in writes]
        with self._writing:
            self._make_pending()
            self._refuse_full(sum(len(body) for body in bodies if body is not None))
            with _translated(self._file), transaction(self._database):
                self._database.execute("DELETE FROM prepared")
                batch = _Batch(self._database, self._revision)
                revisions = [batch.write(*each) for each in zip(writes, bodies, strict=True)]
                horizon = batch.finish(self._horizon)
            self._revision, self._horizon = batch.revision, horizon
            with self._stepped:
                self._stepped.notify_all()
            problem = self._publish_or_retry()
        if problem is not None:
            raise NotInEffect(f"{self._file}: {problem}")
        return revisions

    def close(self) -> None:
        """See `Store.close`."""
        self._retry.end()
        with self._writing, self._reading:
            if self._published is not None:
                self._published.close()
            self._reader.close()
            self._database.close()

    # --- inside ---

    def _prepare(self, writes: Sequence[Write], first: Write, other: Store) -> None:
        text = json.dumps([(each.collection, each.id, each.body, each.expect) for each in writes])
        self._refuse_full(2 * len(text))
        before = other.revision_of(first.collection, first.id)
        with _translated(self._file), transaction(self._database):
            self._dry_run(writes)
            self._database.execute(
                "REPLACE INTO prepared VALUES (1, ?, ?, ?, ?)", [first.collection, first.id, before, text]
            )

    def _dry_run(self, writes: Sequence[Write]) -> None:
        """Raise what the writes would raise; within a transaction, which they leave as it was."""
        self._database.execute("SAVEPOINT dry_run")
        batch = _Batch(self._database, self._revision)
        for each in writes:
            batch.write(each, None if each.body is None else json.dumps(each.body))
        self._database.execute("ROLLBACK TO dry_run")

    def _forget_prepared(self) -> None:
        with _translated(self._file), transaction(self._database):
            self._database.execute("DELETE FROM prepared")

    def _make_pending(self) -> None:
        """Changes whose other part is made come before any other, however often the disk refuses them."""
        writes, self._pending = self._pending, ()
        if not writes:
            return
        try:
            self.commit(writes)
        except StoreWriteError:
            self._pending = writes
            raise

    def _publish_or_retry(self) -> Exception | None:
        """Bring the table up to date; the error if it can't be, and then it is tried again in the background."""
        try:
            self._publish()
        except (NotPublished, StoreError) as error:
            log.error("accounts changed, and forwarding does not know it yet: %s", error)
            self._retry.start()
            return error
        return None

    def _publish(self) -> None:
        if self._published is None:
            return
        with self._writing:
            self._published.catch_up(self._revision, self._own_changes, self._everything)

    def _own_changes(self, since: int) -> list[Change]:
        """As `changes`, read by the writer, who does not wait for a long page."""
        with _translated(self._file):
            return _changes_since(self._database, since)

    def _everything(self) -> Iterator[Change]:
        for collection in TABLES:
            for each in self.documents(collection):
                yield Change(collection, each.id, each.revision, each.body)

    def _refuse_full(self, size: int) -> None:
        """A full disk refuses a change before anything of it is done."""
        try:
            free = shutil.disk_usage(self._file.parent).free
        except OSError as error:
            raise StoreWriteError(f"{self._file}: {error.strerror or error}") from error
        if free < SPARE + 4 * size:
            raise StoreWriteError(f"{self._file}: the disk is full")

    def _one(self, collection: str, column: str, value: str) -> Document | None:
        found = self._documents(
            f"SELECT id, revision, body FROM {_known(collection)} WHERE {column} = ?",  # noqa: S608 - as above
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
        with self._reading, _translated(self._file):
            return self._reader.execute(sql, values).fetchall()


class _Batch:
    """The writes of one commit."""

    def __init__(self, database: sqlite3.Connection, revision: int) -> None:
        self._database = database
        self._deleted = False
        self.revision = revision

    def write(self, write: Write, body: str | None) -> int:
        """The number of this step. Raises `RevisionConflict`, `NotStored`."""
        collection = _known(write.collection)
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


def open_accounts(data: DataDir) -> AccountStore:
    """The accounts of a data directory; an empty file is made at the first start. Raises `StoreError`.

    A table without a store means that the store was there and is gone: that is refused, not taken for a first start.
    """
    if data.accounts_table.exists() and not accounts_file(data).exists():
        raise StoreDamaged(
            f"{accounts_file(data)}: is gone, but {data.accounts_table} shows that there were accounts; restore it"
        )
    return AccountStore(data)


def check_accounts_file(folder: Path) -> None:
    """Raise `StoreError` when the file in a store's folder is damaged or of a later release. None at all is fine."""
    file = folder / accounts_file(DataDir(folder)).name
    if not file.exists():
        return
    with _translated(file), closing(open_for_reading(file)) as database:
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found > 1:
            raise StoreTooNew(f"{file}: has format {found}; this release knows up to 1")
        _check(database, file)


def start_over_above(data: DataDir, revision: int) -> None:
    """Make the accounts of a closed store those of another one, whose next step has a number above `revision`.

    A table of the accounts before is made anew then. Raises `StoreError`.
    """
    file = accounts_file(data)
    if not file.exists():
        return
    with _translated(file), closing(open_database(file, SCHEMA)) as database, transaction(database):
        _, known, _ = _meta(database)
        above = max(known, revision)
        database.execute("DELETE FROM gone")
        database.execute("UPDATE meta SET store = ?, revision = ?, horizon = ?", [secrets.token_hex(8), above, above])


def _known(collection: str) -> str:
    if collection not in TABLES:
        raise KeyError(collection)
    return collection


def _meta(database: sqlite3.Connection) -> tuple[str, int, int]:
    """Id, revision and horizon of the store."""
    row = database.execute("SELECT store, revision, horizon FROM meta").fetchone()
    if row is None:
        database.execute("INSERT INTO meta VALUES (1, ?, 0, 0)", [secrets.token_hex(8)])
        return _meta(database)
    return str(row[0]), int(row[1]), int(row[2])


def _changes_since(database: sqlite3.Connection, since: int) -> list[Change]:
    """Of one moment, in order. Raises `HistoryPruned`."""
    database.execute("BEGIN")
    try:
        _, _, horizon = _meta(database)
        if since < horizon:
            raise HistoryPruned(horizon)
        return sorted(_changes(database, since), key=lambda each: each.revision)
    finally:
        database.execute("ROLLBACK")


def _changes(database: sqlite3.Connection, since: int) -> Iterator[Change]:
    for collection in TABLES:
        rows = database.execute(f"SELECT id, revision, body FROM {collection} WHERE revision > ?", [since])  # noqa: S608 - the name is ours
        for identifier, revision, body in rows:
            yield Change(collection, identifier, revision, json.loads(body))
    for revision, collection, identifier in database.execute("SELECT * FROM gone WHERE revision > ?", [since]):
        yield Change(collection, identifier, revision, None)


def _check(database: sqlite3.Connection, file: Path) -> None:
    (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StoreDamaged(f"{file}: is damaged: {found}; restore it")


@contextmanager
def _translated(file: Path) -> Iterator[None]:
    """SQLite's errors as those of stores."""
    try:
        yield
    except FileTooNew as error:
        raise StoreTooNew(str(error)) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _DAMAGED:
            raise StoreDamaged(f"{file}: {error}; restore it") from error
        raise StoreWriteError(f"{file}: {error}") from error
    except (PathError, OSError) as error:
        raise StoreError(f"{file}: {error}") from error
