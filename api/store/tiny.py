"""The embedded store: TinyDB, one file per collection, one writer.

An entry is `{"revision": n, "body": map}`; a deleted document stays as an entry without a body, so that followers
hear of it. The counter is the greatest revision in any file and is not written anywhere else: a change touches one
file, or several of them together (`api.store.journal`), so there is nothing that could disagree. The oldest deletions
are forgotten when there are too many of them; the entry `HORIZON` then holds the step up to which they are.

`manifest` lists the collections that were ever made, so that a file that is gone is known to be missed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

from tinydb import TinyDB
from tinydb import table as tinydb_table

from api.store.contract import (
    Change,
    Document,
    HistoryPruned,
    NotStored,
    Predicate,
    RevisionConflict,
    StoreDamaged,
    StoreError,
    Write,
)
from api.store.journal import complete, together
from api.store.storage import TABLE, GenerationStorage
from config.paths import DataDir, PathError, private_directory

log = logging.getLogger(__name__)

COLLECTIONS = ("proxies", "users", "api_keys", "refresh_families", "settings", "webhooks")
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

    def write(self, identifier: str, revision: int, body: dict[str, Any] | None) -> None:
        self._write(identifier, {"revision": revision, "body": body})
        if body is None:
            self._tombstones += 1
            if self._tombstones >= 2 * TOMBSTONES_KEPT:
                self._prune()

    def _write(self, identifier: str, entry: dict[str, Any]) -> None:
        if self.entry(identifier) is None:
            self._table.insert(tinydb_table.Document(entry, identifier))  # type: ignore[arg-type]
        else:
            self._table.update(entry, doc_ids=[identifier])  # type: ignore[list-item]

    def _prune(self) -> None:
        """Forget the older half of the deletions; the horizon first, so a crash between the two does no harm."""
        dead = sorted(
            (entry["revision"], identifier)
            for identifier, entry in self.entries(lambda entry: entry["body"] is None)
            if identifier != HORIZON
        )[:-TOMBSTONES_KEPT]
        self.horizon = dead[-1][0]
        self._write(HORIZON, {"revision": self.horizon, "body": None})
        self._table.remove(doc_ids=[identifier for _, identifier in dead])  # type: ignore[misc]
        self._tombstones -= len(dead)

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
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._folder = folder
        self._collections = _open_collections(folder)
        newest = max(each.newest for each in self._collections.values())
        lost = any(each.storage.recovered for each in self._collections.values())
        self._revision = newest + RECOVERY_STEP if lost else newest

    @property
    def revision(self) -> int:
        """The number of the last step."""
        with self._lock:
            return self._revision

    def get(self, collection: str, identifier: str) -> Document | None:
        """See `Store.get`."""
        with self._lock:
            entry = self._collections[collection].entry(identifier)
            return None if entry is None else _document(identifier, entry)

    def find(self, collection: str, where: Predicate | None = None, **fields: Any) -> list[Document]:
        """See `Store.find`."""

        def matches(entry: Mapping[str, Any]) -> bool:
            body = entry["body"]
            if body is None or any(body.get(name) != value for name, value in fields.items()):
                return False
            return where is None or where(body)

        with self._lock:
            found = self._collections[collection].entries(matches)
            documents = [Document(identifier, entry["revision"], _copy(entry["body"])) for identifier, entry in found]
        return sorted(documents, key=lambda document: document.revision)

    def put(self, collection: str, document: Mapping[str, Any], expect: int | None = None) -> Document:
        """See `Store.put`."""
        body = _copy(dict(document))
        with self._lock:
            self._expect(collection, body["id"], expect)
            revision = self._step(collection, body["id"], body)
        return Document(body["id"], revision, _copy(body))

    def delete(self, collection: str, identifier: str, expect: int | None = None) -> int:
        """See `Store.delete`."""
        with self._lock:
            if self._expect(collection, identifier, expect) == 0:
                raise NotStored(collection, identifier)
            return self._step(collection, identifier, None)

    def commit(self, writes: Sequence[Write]) -> list[int]:
        """See `Store.commit`."""
        copies = [(each, None if each.body is None else _copy(dict(each.body))) for each in writes]
        with self._lock:
            for each in writes:
                if self._expect(each.collection, each.id, each.expect) == 0 and each.body is None:
                    raise NotStored(each.collection, each.id)
            first = self._revision + 1
            with self._all_or_none({each.collection for each in writes}):
                for number, (each, body) in enumerate(copies, first):
                    self._collections[each.collection].write(each.id, number, body)
            self._revision += len(writes)
            self._changed.notify_all()
        return list(range(first, first + len(writes)))

    def changes(self, since: int) -> list[Change]:
        """See `Store.changes`."""
        with self._lock:
            horizon = max(each.horizon for each in self._collections.values())
            if since < horizon:
                raise HistoryPruned(horizon)
            return sorted(self._since(since), key=lambda change: change.revision)

    def wait(self, since: int, timeout: float) -> int:
        """See `Store.wait`."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._revision <= since and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._revision

    def check(self) -> None:
        """See `Store.check`."""
        with self._lock:
            for each in self._collections.values():
                each.storage.check()

    def close(self) -> None:
        """See `Store.close`."""
        with self._lock:
            for each in self._collections.values():
                each.close()

    def _expect(self, collection: str, identifier: str, expect: int | None) -> int:
        entry = self._collections[collection].entry(identifier)
        actual = entry["revision"] if entry is not None and entry["body"] is not None else 0
        if expect is not None and actual != expect:
            raise RevisionConflict(collection, identifier, expect, actual)
        return int(actual)

    def _step(self, collection: str, identifier: str, body: dict[str, Any] | None) -> int:
        self._collections[collection].write(identifier, self._revision + 1, body)
        self._revision += 1
        self._changed.notify_all()
        return self._revision

    @contextmanager
    def _all_or_none(self, names: set[str]) -> Iterator[None]:
        touched = [self._collections[name] for name in sorted(names)]
        with ExitStack() as stack:
            for each in touched:
                stack.enter_context(each.rewound())
            stack.enter_context(together(self._folder, [each.storage for each in touched]))
            yield

    def _since(self, since: int) -> Iterator[Change]:
        for name, collection in self._collections.items():
            for identifier, entry in collection.entries(lambda entry: entry["revision"] > since):
                if identifier != HORIZON:
                    yield Change(name, identifier, entry["revision"], _copy(entry["body"]))


def open_store(data: DataDir) -> TinyStore:
    """The store of a data directory, made at the first start. Raises `StoreError`.

    Keys without a store mean that the store was there and is gone: that is refused, not taken for a first start.
    """
    if not _has_files(data.store) and _has_files(data.keys):
        raise StoreDamaged(f"{data.store}: the store is gone, but {data.keys} shows that there was one; restore it")
    return TinyStore(data.store)


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


def _document(identifier: str, entry: Mapping[str, Any]) -> Document | None:
    return None if entry["body"] is None else Document(identifier, entry["revision"], _copy(entry["body"]))


def _copy(value: Any) -> Any:
    """A copy of a JSON-like value that shares nothing that can be altered."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return value
