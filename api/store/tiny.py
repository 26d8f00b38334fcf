"""The embedded store: TinyDB, one file per collection, one writer.

An entry is `{"revision": n, "body": map}`; a deleted document stays as an entry without a body, so that followers
see its deletion. The counter is the greatest revision in any file and is not written anywhere else: a change touches
one file, or several of them together (`api.store.commit_journal`), so there is nothing that could disagree. The oldest
deletions are forgotten when there are too many of them; the entry `HORIZON` then holds the step up to which they are.

TinyDB is used for writing; readers use a `View` of what is durable, and never wait for a writer.

`manifest` lists the collections that were ever made, so that a missing file is detected.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tinydb import TinyDB
from tinydb import table as tinydb_table

from api.store.commit_journal import complete, together
from api.store.interface import (
    Change,
    Document,
    NotStored,
    Predicate,
    RevisionConflict,
    StoreDamaged,
    StoreError,
    StoreWriteError,
    Write,
)
from api.store.storage import TABLE, GenerationStorage, rewrite
from api.store.view import Body, View
from config.files.paths import DataDir, PathError, private_directory

log = logging.getLogger(__name__)

COLLECTIONS = (
    *("proxies", "users", "api_keys", "refresh_families", "settings", "webhooks"),
    *("lists", "pools", "policies", "fetched_upstreams"),
)
TOMBSTONES_KEPT = 1_000
"""Deletions that a collection remembers at least."""

HORIZON = "~horizon"
"""Not an id that a document can have: ids are letters, digits, `_` and `-`."""

RECOVERY_STEP = 1_000
"""How far the counter jumps when a generation was lost: revisions that were given out are not given out again."""

_MANIFEST = "manifest"


class _Table(tinydb_table.Table):
    document_id_class = str  # type: ignore[assignment]  # TinyDB's own way to say that ids are strings
    default_query_cache_capacity = 0


class _Collection:
    """One file and its TinyDB."""

    def __init__(self, folder: Path, name: str, create: bool) -> None:
        self.storage = GenerationStorage(folder / f"{name}.json", create)
        self._database = TinyDB(storage=lambda: self.storage)
        self._table = _Table(self.storage, TABLE, cache_size=0)
        entries = self.storage.read()[TABLE]
        self._tombstones = sum(entry["body"] is None for entry in entries.values())
        horizon = entries.get(HORIZON)
        self.horizon: int = horizon["revision"] if horizon else 0
        self.newest: int = max((entry["revision"] for entry in entries.values()), default=0)

    def entry(self, identifier: str) -> Mapping[str, Any] | None:
        found = self._table.get(doc_id=identifier)  # type: ignore[call-overload]  # ids are strings here
        return found if isinstance(found, dict) else None

    def entries(self, condition: Predicate) -> list[tuple[str, Mapping[str, Any]]]:
        return [(str(found.doc_id), found) for found in self._table.search(cast("Any", condition))]

    def write(self, identifier: str, revision: int, body: Body | None) -> None:
        before = self.entry(identifier)
        was_gone = before is not None and before["body"] is None
        self._write(identifier, {"revision": revision, "body": body})
        self._tombstones += (body is None) - was_gone

    def prune(self) -> list[str]:
        """The ids of deletions that are forgotten now because there were too many. Raises `StoreWriteError`."""
        return self._prune() if self._tombstones >= 2 * TOMBSTONES_KEPT else []

    def _write(self, identifier: str, entry: dict[str, Any]) -> None:
        self.storage.mark_changed([identifier])
        if self.entry(identifier) is None:
            self._table.insert(tinydb_table.Document(entry, identifier))  # type: ignore[arg-type]  # ids are strings here
        else:
            self._table.update(entry, doc_ids=[identifier])  # type: ignore[list-item]  # ids are strings here

    def _prune(self) -> list[str]:
        """Forget the older half of the deletions; the horizon first, so a crash between the two does no harm."""
        dead = sorted(
            (entry["revision"], identifier)
            for identifier, entry in self.entries(lambda entry: entry["body"] is None)
            if identifier != HORIZON
        )[:-TOMBSTONES_KEPT]
        gone = [identifier for _, identifier in dead]
        self.horizon = dead[-1][0]
        self._write(HORIZON, {"revision": self.horizon, "body": None})
        self.storage.mark_changed(gone)
        self._table.remove(doc_ids=gone)  # type: ignore[arg-type]  # ids are strings here
        self._tombstones -= len(gone)
        return gone

    @contextmanager
    def rewound(self) -> Iterator[None]:
        """What is counted here is as before when the block raises."""
        counted = self._tombstones, self.horizon
        try:
            yield
        except BaseException:
            self._tombstones, self.horizon = counted
            raise

    def close(self) -> None:
        self._database.close()


class TinyStore:
    """The `Store` on a folder of this machine. The caller sees to it that there is one per folder."""

    def __init__(self, folder: Path) -> None:
        """Open the store in `folder`, or make it when the folder is empty or absent. Raises `StoreError`."""
        self._writing = threading.RLock()
        self._folder = folder
        self._collections = _open_collections(folder)
        newest = max(each.newest for each in self._collections.values())
        lost = any(each.storage.recovered for each in self._collections.values())
        horizon = max(each.horizon for each in self._collections.values())
        revision = newest + RECOVERY_STEP if lost else newest
        self._view = View(self._everything(), COLLECTIONS, revision, horizon)

    @property
    def revision(self) -> int:
        """The number of the last step."""
        return self._view.revision

    def get(self, collection: str, identifier: str) -> Document | None:
        """See `Store.get`."""
        found = self._view.get(collection, identifier)
        return None if found is None else Document(identifier, found[0], _copy(found[1]))

    def revision_of(self, collection: str, identifier: str) -> int:
        """See `Store.revision_of`."""
        found = self._view.get(collection, identifier)
        return 0 if found is None else found[0]

    def changed_after(self, collection: str, identifier: str, step: int) -> bool:
        """See `Store.changed_after`."""
        return self._view.changed_after(collection, identifier, step)

    def find(self, collection: str, where: Predicate | None = None, **fields: Any) -> list[Document]:
        """See `Store.find`."""

        def matches(body: Body) -> bool:
            return all(body.get(name) == value for name, value in fields.items()) and (where is None or where(body))

        found = [each for each in self._view.all(collection) if matches(each[1][1])]
        documents = [Document(identifier, revision, _copy(body)) for identifier, (revision, body) in found]
        return sorted(documents, key=lambda document: document.revision)

    def every(self, collection: str) -> list[Document]:
        """See `Store.every`."""
        found = self._view.all(collection)
        return [Document(identifier, revision, dict(body)) for identifier, (revision, body) in found]

    def put(self, collection: str, document: Mapping[str, Any], expect: int | None = None) -> Document:
        """See `Store.put`."""
        body = _copy(dict(document))
        with self._writing:
            self._expect(collection, body["id"], expect)
            revision = self._step(collection, body["id"], body)
        return Document(body["id"], revision, _copy(body))

    def delete(self, collection: str, identifier: str, expect: int | None = None) -> int:
        """See `Store.delete`."""
        with self._writing:
            if self._expect(collection, identifier, expect) == 0:
                raise NotStored(collection, identifier)
            return self._step(collection, identifier, None)

    def commit(self, writes: Sequence[Write]) -> list[int]:
        """See `Store.commit`."""
        copies = [None if each.body is None else _copy(dict(each.body)) for each in writes]
        with self._writing:
            for each in writes:
                if self._expect(each.collection, each.id, each.expect) == 0 and each.body is None:
                    raise NotStored(each.collection, each.id)
            changes = [
                Change(each.collection, each.id, revision, body)
                for revision, (each, body) in enumerate(zip(writes, copies, strict=True), self._view.revision + 1)
            ]
            names = {each.collection for each in writes}
            with self._all_or_none(names):
                for change in changes:
                    self._collections[change.collection].write(change.id, change.revision, change.body)
            self._view.step(*changes)
            for name in sorted(names):
                self._prune(name)
        return [change.revision for change in changes]

    def changes(self, since: int) -> list[Change]:
        """See `Store.changes`."""
        return [replace(change, body=_copy(change.body)) for change in self._view.changes(since)]

    def wait(self, since: int, timeout: float) -> int:
        """See `Store.wait`."""
        return self._view.wait(since, timeout)

    def check(self) -> None:
        """See `Store.check`."""
        with self._writing:
            for each in self._collections.values():
                each.storage.check()

    def close(self) -> None:
        """See `Store.close`."""
        with self._writing:
            for each in self._collections.values():
                each.close()

    def _expect(self, collection: str, identifier: str, expect: int | None) -> int:
        actual = self.revision_of(collection, identifier)
        if expect is not None and actual != expect:
            raise RevisionConflict(collection, identifier, expect, actual)
        return actual

    def _step(self, collection: str, identifier: str, body: Body | None) -> int:
        revision = self._view.revision + 1
        self._collections[collection].write(identifier, revision, body)
        self._view.step(Change(collection, identifier, revision, cast("Any", body)))
        if body is None:
            self._prune(collection)
        return revision

    @contextmanager
    def _all_or_none(self, names: set[str]) -> Iterator[None]:
        touched = [self._collections[name] for name in sorted(names)]
        with ExitStack() as stack:
            for each in touched:
                stack.enter_context(each.rewound())
            stack.enter_context(together(self._folder, [each.storage for each in touched]))
            yield

    def _prune(self, collection: str) -> None:
        """The deletion before this is made already, so it must not fail if this does; the next one tries again."""
        try:
            gone = self._collections[collection].prune()
        except StoreWriteError as error:
            log.warning("%s: old deletions could not be forgotten: %s", collection, error)
            return
        self._view.forget(collection, gone, self._collections[collection].horizon)

    def _everything(self) -> Iterator[Change]:
        for name, collection in self._collections.items():
            for identifier, entry in collection.storage.read()[TABLE].items():
                if identifier != HORIZON:
                    yield Change(name, identifier, entry["revision"], entry["body"])


def open_store(data: DataDir) -> TinyStore:
    """The store of a data directory, made at the first start. Raises `StoreError`.

    Keys without a store mean that the store was there and is gone: that is refused, not taken for a first start.
    """
    if not _has_files(data.store) and _has_files(data.keys):
        raise StoreDamaged(f"{data.store}: the store is gone, but {data.keys} shows that there was one; restore it")
    return TinyStore(data.store)


def start_over(data: DataDir, collection: str, revision: int) -> None:
    """Empty a collection of a closed store; the next step of the store has a number above `revision`.

    Followers of an earlier step get `HistoryPruned`. Raises `StoreError`.
    """
    rewrite(data.store / f"{collection}.json", lambda _entries: {HORIZON: {"revision": revision, "body": None}})


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _open_collections(folder: Path) -> dict[str, _Collection]:
    try:
        private_directory(folder)
    except PathError as error:
        raise StoreError(str(error)) from error
    complete(folder)
    manifest = _open_manifest(folder)
    known = {identifier for identifier, _ in manifest.entries(lambda _entry: True)}
    opened = {}
    for name in COLLECTIONS:
        opened[name] = _Collection(folder, name, create=name not in known)
        if name not in known:
            manifest.write(name, 1, {"id": name})
    manifest.close()
    return opened


def _open_manifest(folder: Path) -> _Collection:
    """The manifest; a new one when nothing was ever stored here.

    A collection is listed after its first, empty file was made. So a file that isn't listed may be left over from a
    first start that was cut off, and then it is empty; with documents in it, it is the manifest that is missing.
    """
    if any(folder.glob(f"{_MANIFEST}.json*")) and not _only_half_made(folder):
        return _Collection(folder, _MANIFEST, create=False)
    for name in COLLECTIONS:
        if (folder / f"{name}.json").exists() and _Collection(folder, name, create=False).newest:
            raise StoreDamaged(f"{folder}: the manifest is gone, but there are documents; restore the folder")
    return _Collection(folder, _MANIFEST, create=True)


def _only_half_made(folder: Path) -> bool:
    """The very first write was cut off before its rename: all there is of the manifest is a `.new`."""
    return [path.name for path in folder.glob(f"{_MANIFEST}.json*")] == [f"{_MANIFEST}.json.new"]


def _copy(value: Any) -> Any:
    """A copy of a JSON-like value that shares nothing that can be altered."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return value
