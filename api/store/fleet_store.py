"""Everything that the file of a fleet stores, as one `Store`: documents in memory, and accounts in their tables."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from actors.sqlite import open_for_reading
from api.store.accounts.columns import ACCOUNTS, CREDENTIALS, TABLES
from api.store.accounts.store import AccountStore
from api.store.fleet_file import Confirm, FleetFile, is_blank, translated
from api.store.interface import Change, Document, NotStored, Predicate, RevisionConflict, StoreDamaged, Write
from api.store.rows import RowStorage, text_of
from api.store.tiny import TinyStore, copied
from config.files.paths import DataDir

RECOVERY_STEP = 1_000
"""How far the numbers of commits jump at a restore: those that were given out are not given out again."""


Key = tuple[str, str]
"""Collection and id of a document."""


class FleetStore:
    """The `Store` of all collections. There is one per data directory, which the caller has locked.

    `revision` and `changed` are those of `documents`.
    """

    USED = ("api_keys", "users")
    """Collections of which it is noted when documents were used last."""

    def __init__(self, data: DataDir, confirm: Confirm | None = None) -> None:
        """Open the file, or make it; `confirm` as in `FleetFile`. Raises `StoreError`."""
        self._of_uses: dict[str, Callable[[str, float], object]] = {}
        self.file = FleetFile(data.fleet, confirm)
        try:
            self.documents = TinyStore(self.file)
            self.accounts = AccountStore(self.file, data)
        except BaseException:
            self.file.close()
            raise

    @property
    def revision(self) -> int:
        """See `Store.revision`."""
        return self.documents.revision

    def get(self, collection: str, identifier: str) -> Document | None:
        """See `Store.get`."""
        return self._of(collection).get(collection, identifier)

    def revision_of(self, collection: str, identifier: str) -> int:
        """See `Store.revision_of`."""
        return self._of(collection).revision_of(collection, identifier)

    def find(self, collection: str, where: Predicate | None = None, **fields: Any) -> list[Document]:
        """See `Store.find`."""
        return self._of(collection).find(collection, where, **fields)

    def every(self, collection: str) -> list[Document]:
        """See `Store.every`."""
        return self._of(collection).every(collection)

    def put(self, collection: str, document: Mapping[str, Any], expect: int | None = None) -> Document:
        """See `Store.put`."""
        number = self.commit([Write(collection, document["id"], document, expect)])
        return Document(document["id"], number, dict(document))

    def delete(self, collection: str, identifier: str, expect: int | None = None) -> int:
        """See `Store.delete`."""
        return self.commit([Write(collection, identifier, None, expect)])

    def commit(self, writes: Sequence[Write]) -> int:
        """See `Store.commit`."""
        size = sum(len(text_of(each.body)) for each in writes if each.body is not None)
        with self.file.transaction(size) as database:
            number = self.file.number()
            self.take(self.changes_of(database, writes)[1])
            return number

    @contextmanager
    def rechecked(self, _check: Callable[[], object]) -> Iterator[None]:
        """What is committed within the block is checked again where others may have committed since."""
        yield

    def changes_of(
        self, database: Any, writes: Sequence[Write], number: int | None = None
    ) -> tuple[dict[Key, Document | None], list[Change]]:
        """What these writes change, within the transaction that has their number, and what is there before it.

        `number` is that of the commit unless it is given.
        The deletion of an account ends its credentials, too. Raises `RevisionConflict`, `NotStored`.
        """
        before: dict[Key, Document | None] = {}
        changes: dict[Key, Change] = {}
        number = self.file.number() if number is None else number
        for each in writes:
            key = each.collection, each.id
            known = before[key] = self.present(database, *key)
            actual = 0 if known is None else known.revision
            if each.expect is not None and each.expect != actual:
                raise RevisionConflict(*key, each.expect, actual)
            is_there = changes[key].body is not None if key in changes else known is not None
            if each.body is None and not is_there:
                raise NotStored(*key)
            if each.body is None and each.collection == ACCOUNTS:
                ended = self.accounts.ended_with(database, each.id)
                ended |= {one.id: None for one in changes.values() if _is_credential_of(each.id, one)}
                for identifier, document in ended.items():
                    before.setdefault((CREDENTIALS, identifier), document)
                    changes[CREDENTIALS, identifier] = Change(CREDENTIALS, identifier, number, None)
            changes[key] = Change(*key, number, None if each.body is None else copied(dict(each.body)))
        return before, list(changes.values())

    def take(self, changes: Sequence[Change]) -> None:
        """Make these changes, within the transaction that has their numbers; a document is changed once."""
        for store, is_its in ((self.documents, False), (self.accounts, True)):
            part = [each for each in changes if (each.collection in TABLES) is is_its]
            if part:
                store.take(part)

    @contextmanager
    def anew(self, database: Any, number: int) -> Iterator[None]:
        """Within a transaction: by the block the file gets to this commit, above all that it has had.

        No step leads there. Followers of an earlier one get `HistoryPruned`, when all of it is there.
        """
        self.file.after(self.documents.leave_order)
        yield
        for table in ("deleted", "gone"):
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - names of ours
        database.execute("UPDATE steps SET revision = ?1, horizon = ?1", [number])
        database.execute("UPDATE accounts_store SET revision = ?1, horizon = ?1", [number])
        self.file.after(lambda: self.documents.begin_anew(number))
        self.file.after(lambda: self.accounts.begin_anew(number))

    @staticmethod
    def present(database: Any, collection: str, identifier: str) -> Document | None:
        """A document as the writer sees it within its transaction."""
        table, rest = (collection, "") if collection in TABLES else ("documents", " AND collection = ?")
        values = [identifier, collection] if rest else [identifier]
        row = database.execute(f"SELECT revision, body FROM {table} WHERE id = ?{rest}", values).fetchone()  # noqa: S608 - the name is ours
        return None if row is None else Document(identifier, row[0], json.loads(row[1]))

    def changed(self, since: int, collection: str | None = None) -> list[Change]:
        """See `Store.changed`."""
        return self.documents.changed(since, collection)

    def last_used(self, collection: str) -> dict[str, float]:
        """When documents were used last (Unix seconds), by id; without those that never were."""
        with self.file.reading() as database:
            return dict(database.execute("SELECT id, at FROM last_used WHERE collection = ?", [collection]))

    def follow_uses(self, collection: str, take: Callable[[str, float], object]) -> None:
        """Call `take` when another node has used a document of this collection, with its id and when."""
        self._of_uses[collection] = take

    def note_use(self, collection: str, identifier: str, at: float, at_other_node: bool = False) -> None:
        """A document was used; of a user, signed in. That is no change, and has no number. Raises `StoreWriteError`.

        `at_other_node` is at another node of the fleet.
        """
        with self.file.transaction() as database:
            database.execute(
                "REPLACE INTO last_used SELECT collection, id, ? FROM documents WHERE collection = ? AND id = ?",
                [at, collection, identifier],
            )
        if at_other_node and collection in self._of_uses:
            self._of_uses[collection](identifier, at)

    def check(self) -> None:
        """See `Store.check`."""
        self.file.check()

    def close(self) -> None:
        """See `Store.close`."""
        self.accounts.close()
        self.file.close()

    def _of(self, collection: str) -> TinyStore | AccountStore:
        return self.accounts if collection in TABLES else self.documents


def _is_credential_of(account_id: str, change: Change) -> bool:
    return change.collection == CREDENTIALS and change.body is not None and change.body["account_id"] == account_id


def open_store(data: DataDir) -> FleetStore:
    """The store of a data directory, made at the first start. Raises `StoreError`."""
    require_store(data)
    return FleetStore(data)


def require_store(data: DataDir) -> None:
    """Raise `StoreDamaged` if the file is gone, as keys show: that is no first start."""
    if is_blank(data.fleet) and data.keys.is_dir() and any(os.scandir(data.keys)):
        raise StoreDamaged(f"{data.fleet}: is gone, but {data.keys} shows that there was one; restore it")


def start_over(data: DataDir, collections: Collection[str], above: int) -> None:
    """Empty collections of a closed store; the next commit has a number above `above`. Needs hardly any space.

    Followers of an earlier one get `HistoryPruned`. Raises `StoreError`.
    """
    file = FleetFile(data.fleet)
    try:
        with file.transaction() as database:
            database.executemany("DELETE FROM documents WHERE collection = ?", [[each] for each in collections])
            database.execute("DELETE FROM deleted")
            database.execute("DELETE FROM gone")
            database.execute("DELETE FROM loose")
            database.execute("DELETE FROM loose_heads")
            database.execute("DELETE FROM stamps")
            database.execute("UPDATE steps SET revision = max(revision, ?), horizon = max(revision, ?)", [above] * 2)
            horizon = "(SELECT horizon FROM steps)"
            database.execute(f"UPDATE accounts_store SET revision = {horizon}, horizon = {horizon}")  # noqa: S608 - ours
    finally:
        file.close()


def peek(data: DataDir, collection: str) -> dict[str, dict[str, Any]]:
    """The bodies of documents by their ids, read without a lock while the product may run.

    Empty where there is no file, or it may not be read. Raises `StoreError`.
    """
    if not data.fleet.exists() or not os.access(data.fleet, os.R_OK):
        return {}
    with translated(data.fleet), closing(open_for_reading(data.fleet)) as database:
        return dict(RowStorage(database).rows(collection).items())
