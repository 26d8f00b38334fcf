"""Reading and writing the file of accounts, plans and credentials.

One connection writes, under a lock; another reads what the last commit left. Every commit is synced before it returns
(WAL with `synchronous=FULL`) and is in the table of forwarding actors then, too (`api.store.accounts.publication`).
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from actors.sqlite import open_database, transaction
from api.store.accounts.batch import Batch
from api.store.accounts.file import changes_since, check_file, meta, translated
from api.store.accounts.pages import BY_FIGURE, AccountSelection, Position, certificate_clash_sql, clash_sql
from api.store.accounts.publication import NotPublished, Published, Retry
from api.store.accounts.schema import (
    ACCOUNTS,
    PLANS,
    SCHEMA,
    TABLES,
    accounts_file,
    known,
)
from api.store.accounts.usage_order import positions_by_figure
from api.store.interface import (
    Change,
    Document,
    NotInEffect,
    Predicate,
    Store,
    StoreDamaged,
    StoreError,
    StoreWriteError,
    Write,
)
from config.files.paths import DataDir

log = logging.getLogger(__name__)

SPARE = 2**20
"""Bytes that a commit leaves free on the disk, beside four times its own size: the file and the table need them."""


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
        with translated(self._file):
            self._database = open_database(self._file, SCHEMA, any_thread=True)
            self._database.execute("PRAGMA synchronous=FULL")
            check_file(self._database, self._file)
            self.id, self._revision, self._horizon = meta(self._database)
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
        rows = self._rows(f"SELECT revision FROM {known(collection)} WHERE id = ?", [identifier])  # noqa: S608 - the name is ours
        return int(rows[0][0]) if rows else 0

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
        with self._writing, translated(self._file), transaction(self._database):
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
                f"SELECT id, revision, body FROM {known(collection)} WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608 - as above
                [last, batch],
            )
            yield from found
            if len(found) < batch:
                return
            last = found[-1].id

    def changes(self, since: int) -> list[Change]:
        """See `Store.changes`."""
        with self._reading, translated(self._file):
            return changes_since(self._reader, since)

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
            with translated(self._file), transaction(self._database):
                self._database.execute("DELETE FROM prepared")
                batch = Batch(self._database, self._revision)
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
        with translated(self._file), transaction(self._database):
            self._dry_run(writes)
            self._database.execute(
                "REPLACE INTO prepared VALUES (1, ?, ?, ?, ?)", [first.collection, first.id, before, text]
            )

    def _dry_run(self, writes: Sequence[Write]) -> None:
        """Raise what the writes would raise; within a transaction, which they leave as it was."""
        self._database.execute("SAVEPOINT dry_run")
        batch = Batch(self._database, self._revision)
        for each in writes:
            batch.write(each, None if each.body is None else json.dumps(each.body))
        self._database.execute("ROLLBACK TO dry_run")

    def _forget_prepared(self) -> None:
        with translated(self._file), transaction(self._database):
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
        with translated(self._file):
            return changes_since(self._database, since)

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
        with self._reading, translated(self._file):
            return self._reader.execute(sql, values).fetchall()


def open_accounts(data: DataDir) -> AccountStore:
    """The accounts of a data directory; an empty file is made at the first start. Raises `StoreError`.

    A table without a store means that the store was there and is gone: that is refused, not taken for a first start.
    """
    if data.accounts_table.exists() and not accounts_file(data).exists():
        raise StoreDamaged(
            f"{accounts_file(data)}: is gone, but {data.accounts_table} shows that there were accounts; restore it"
        )
    return AccountStore(data)
