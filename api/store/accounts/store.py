"""Writing the file of accounts, plans and credentials.

One connection writes, under a lock; another reads what the last commit left (`api.store.accounts.reading`). Every
commit is synced before it returns (WAL with `synchronous=FULL`) and is in the table of forwarding actors then, too
(`api.store.accounts.publication`).
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from actors.accounts.table_writer import TableChange
from actors.sqlite import open_database, sync_each_commit, transaction
from api.store.accounts.batch import Batch
from api.store.accounts.file import changes_since, check_file, meta, translated
from api.store.accounts.publication import Missing, NotPublished, Published, Retry, table_change
from api.store.accounts.reading import AccountEnd, AccountReader
from api.store.accounts.schema import SCHEMA, TABLES, accounts_file
from api.store.accounts.staging import Staging, remove_left
from api.store.interface import (
    Change,
    Document,
    NotInEffect,
    Store,
    StoreDamaged,
    StoreError,
    StoreWriteError,
    Write,
)
from config.files.accounts_table import former_tables
from config.files.paths import DataDir

log = logging.getLogger(__name__)

SPARE = 2**20
"""Bytes that a commit leaves free on the disk, beside four times its own size: the file and the table need them."""
STAGED_SPACE = 3
"""As many times more, for a commit that is much larger than the log of the file usually is, and its audit entries."""


class AccountStore(AccountReader):
    """The `Store` of the collections `accounts`, `plans` and `credentials`. Thread-safe; one per data directory.

    The deletion of an account removes its credentials, too, each as a step of its own.
    """

    def __init__(self, data: DataDir, publish: bool = True) -> None:
        """Open the file, or make it; with `publish`, bring the table up to date. Raises `StoreError`."""
        file = accounts_file(data)
        self._writing = threading.RLock()
        self._stepped = threading.Condition()
        remove_left(file.parent)
        with translated(file):
            self._database = open_database(file, SCHEMA, any_thread=True)
            sync_each_commit(self._database)
            check_file(self._database, file)
            self.id, self._revision, self._horizon = meta(self._database)
        super().__init__(file, data.usage)
        self._pending: Sequence[Write] = ()
        self._published = Published(data, self.id) if publish else None
        self._retry = Retry(self._publish)
        self._publish_or_retry()

    @property
    def revision(self) -> int:
        """The number of the last step."""
        return self._revision

    def changes(self, since: int) -> list[Change]:
        """See `Store.changes`."""
        with self._reading, translated(self._file), changes_since(self._reader, since) as found:
            return list(found)

    def changed_after(self, collection: str, identifier: str, step: int) -> bool:
        """See `Store.changed_after`."""
        if revision := self.revision_of(collection, identifier):
            return revision > step
        gone = "SELECT 1 FROM gone WHERE revision > ? AND collection = ? AND id = ?"
        return step < self._horizon or bool(self._rows(gone, [step, collection, identifier]))

    def wait(self, since: int, timeout: float) -> int:
        """See `Store.wait`."""
        deadline = time.monotonic() + timeout
        with self._stepped:
            while self._revision <= since and (left := deadline - time.monotonic()) > 0:
                self._stepped.wait(left)
            return self._revision

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
            self._committed(batch.revision, horizon)
        return revisions

    def staging(self) -> Staging:
        """For accounts that are to be stored in one step and are too many for memory; to be closed by the caller."""
        return Staging(self._file)

    def commit_staged(self, staged: Staging) -> None:
        """Make all changes of `staged`, each one step, or none of them. Raises as `commit`."""
        with self._writing:
            self._make_pending()
            self.refuse_full_for(staged)
            with translated(self._file), staged.attached(self._database), transaction(self._database):
                self._database.execute("DELETE FROM prepared")
                revision = staged.merge(self._database, self._revision)
                self._database.execute("UPDATE meta SET revision = ?", [revision])
            before = self._revision

            @contextmanager
            def staged_changes(since: int) -> Iterator[Iterable[TableChange]]:
                with nullcontext(staged.table_changes()) if since == before else self._own_changes(since) as found:
                    yield found

            self._committed(revision, self._horizon, staged_changes)

    def check_table(self) -> None:
        """Make the table anew if its file was removed, replaced or damaged by others."""
        if not self._retry.under_way:
            self._publish_or_retry()

    def close(self) -> None:
        """See `Store.close`."""
        self._retry.end()
        with self._writing, self._reading:
            if self._published is not None:
                self._published.close()
            self._reader.close()
            self._database.close()

    def ends_announced(self, ends: Iterable[AccountEnd]) -> None:
        """These were announced. It is no step of the store. Raises `StoreWriteError`."""
        with self._writing, translated(self._file), transaction(self._database):
            self._database.executemany(
                "DELETE FROM ends WHERE account_id = ? AND expires_at = ?",
                [(each.account_id, each.expires_at) for each in ends],
            )

    def refuse_full_for(self, staged: Staging) -> None:
        """Raise `StoreWriteError` if the disk has no room for this change, before anything of it is done."""
        self._refuse_full(STAGED_SPACE * staged.size)

    # --- inside ---

    def _committed(self, revision: int, horizon: int, changes: Missing | None = None) -> None:
        """The writer has committed up to this step; `changes` are known to its caller. Raises `NotInEffect`."""
        self._revision, self._horizon = revision, horizon
        with self._stepped:
            self._stepped.notify_all()
        problem = self._publish_or_retry(changes)
        if problem is not None:
            raise NotInEffect(f"{self._file}: {problem}")

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

    def _publish_or_retry(self, changes: Missing | None = None) -> Exception | None:
        """Bring the table up to date; the error if it can't be, and then it is tried again in the background."""
        try:
            self._publish(changes)
        except (NotPublished, StoreError) as error:
            log.error("accounts changed, and forwarding does not know it yet: %s", error)
            self._retry.start()
            return error
        return None

    def _publish(self, changes: Missing | None = None) -> None:
        if self._published is None:
            return
        with self._writing:
            self._published.catch_up(self._revision, changes or self._own_changes, self._everything)

    @contextmanager
    def _own_changes(self, since: int) -> Iterator[Iterator[TableChange]]:
        """What `changes` are in the table, one by one, read by the writer, who does not wait for a long page."""
        with translated(self._file), changes_since(self._database, since) as found:
            yield map(table_change, found)

    def _everything(self) -> Iterator[Change]:
        for collection in TABLES:
            for each in self.documents(collection):
                yield Change(collection, each.id, each.revision, each.body)

    def _refuse_full(self, size: int) -> None:
        """As `refuse_full_for`, for documents of so many bytes."""
        try:
            free = shutil.disk_usage(self._file.parent).free
        except OSError as error:
            raise StoreWriteError(f"{self._file}: {error.strerror or error}") from error
        if free < SPARE + 4 * size:
            raise StoreWriteError(f"{self._file}: the disk is full")


def open_accounts(data: DataDir) -> AccountStore:
    """The accounts of a data directory; an empty file is made at the first start. Raises `StoreError`.

    A table without a store means that the store was there and is gone: that is refused, not taken for a first start.
    """
    table = data.accounts_table
    tables = [table] if table.exists() else former_tables(table)
    if tables and not accounts_file(data).exists():
        raise StoreDamaged(
            f"{accounts_file(data)}: is gone, but {tables[0]} shows that there were accounts; restore it"
        )
    return AccountStore(data)
