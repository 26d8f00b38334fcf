"""How one collection reaches the disk: a storage for TinyDB that a crash can't tear.

The whole collection is one file that is never altered in place. A write goes to a file beside it, which is synced; then
the file so far is linked as the previous generation, the new one is renamed over it, and the folder is synced. At
every moment the name leads to a whole file, old or new.

The first line is `proxyfleet-store <schema> <sha256>`; the hash covers the schema number and everything after the
line. So a file that was cut short, or has one bit turned, is detected, and a later schema is distinguished from damage.
"""

from __future__ import annotations

import hashlib
import json
import logging
import marshal
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from tinydb.storages import Storage

from api.store.interface import StoreDamaged, StoreTooNew, StoreWriteError
from config.files.durable import sync, write_synced

log = logging.getLogger(__name__)

SCHEMA = 1
TABLE = "documents"
_MAGIC = "proxyfleet-store"

SHARED_FIELDS, SHARED_PARTS = 10, 1_000
"""Fields of an object in a body that may be shared, and how many different ones are remembered while a file is read."""
_WITHOUT_REFERENCES = 2
"""The format of `marshal` in which values that are alike have the same bytes."""

Tables = dict[str, dict[str, Any]]
"""TinyDB's view: tables by name, each a map from id to an entry `{"revision": int, "body": map or None}`."""


class GenerationStorage(Storage):
    """The storage of one collection. Not thread-safe: its store holds a lock around it.

    `recovered` says that the previous generation had to be taken because the last one was damaged.
    """

    def __init__(self, path: Path, create: bool) -> None:
        """Read the file; with `create`, start an empty one. Raises `StoreDamaged`, `StoreTooNew`, `StoreWriteError`."""
        self._path = path
        self._previous = path.with_name(path.name + ".previous")
        self._texts: dict[str, bytes] | None = None
        """Of the entries as they are in the file but for those in `_altered`; None when they aren't known."""
        self._altered: set[str] = set()
        self._changes_known = False
        """Is it known what the next write alters?"""
        self._fresh: dict[str, bytes] = {}
        """The texts of what is being written."""
        self._broken: str | None = None
        self._staging = False
        self._staged = b""
        self.recovered = False
        self._written = b""
        if create:
            self._image: Tables = {TABLE: {}}
            self.write(self._image)
        else:
            self._image = self._open()

    # --- what TinyDB calls ---

    def read(self) -> Tables:
        """The collection as it is on disk. TinyDB alters what it gets here, just before it calls `write`."""
        return self._image

    def write(self, data: Mapping[str, Mapping[str, Any]]) -> None:
        """Make `data` the content of the file, durably, or raise `StoreWriteError` and change nothing.

        Between `begin` and `commit` or `abandon` it is only remembered.
        """
        if not self._changes_known:
            self._texts = None
        self._changes_known = False
        if self._staging:
            self._image = {TABLE: dict(data[TABLE])}
            return
        try:
            self._refuse_when_broken()
            content = self._serialise(data[TABLE])
            self._replace(content)
        except OSError as error:
            self._restore()
            raise StoreWriteError(f"{self._path}: {error.strerror or error}") from error
        except StoreWriteError:
            self._restore()
            raise
        self._written, self._texts = content, self._fresh
        self._image = {TABLE: dict(data[TABLE])}

    # --- for a change over several collections (`api.store.commit_journal`) ---

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def begin(self) -> None:
        """Writes are only remembered from now on. Raises `StoreWriteError`."""
        self._refuse_when_broken()
        self._staging = True

    def finish(self) -> None:
        """What was written since `begin` is the content of the file, durably. Raises as `write`."""
        self._staging, self._changes_known = False, True
        self.write(self._image)

    def stage(self) -> str:
        """Put what was written since `begin` beside the file, synced; its digest. Raises `OSError`."""
        self._staged = self._serialise(self._image[TABLE])
        write_synced(staging_path(self._path), self._staged)
        return digest_of(self._staged)

    def install(self) -> None:
        """What was staged becomes the file; the caller syncs the folder. Raises `OSError`."""
        install(self._path)

    def commit(self) -> None:
        """It is the file, for good."""
        self._staging = False
        self._written, self._texts = self._staged, self._fresh

    def abandon(self, broken: str | None = None) -> None:
        """It never was. `broken` says why nothing more is to be written before the next start."""
        self._staging = False
        self._broken = self._broken or broken
        self._restore()

    # --- for the store ---

    def mark_changed(self, identifiers: Collection[str]) -> None:
        """The next write differs from the file in these entries alone. Without this call all are serialized anew."""
        self._altered.update(identifiers)
        self._changes_known = True

    def check(self) -> None:
        """Raise `StoreWriteError` or `StoreDamaged` when the file is no longer what was written."""
        self._refuse_when_broken()
        try:
            size = self._path.stat().st_size
        except OSError as error:
            raise StoreDamaged(f"{self._path}: {error.strerror or error}") from error
        if size != len(self._written):
            raise StoreDamaged(f"{self._path}: {size} bytes, but {len(self._written)} were written")

    # --- reading ---

    def _open(self) -> Tables:
        try:
            return self._load(self._path)
        except StoreDamaged as damage:
            log.critical("the configuration store is damaged: %s", damage)
            return self._fall_back(damage)

    def _fall_back(self, damage: StoreDamaged) -> Tables:
        try:
            tables = self._load(self._previous)
        except StoreDamaged as worse:
            raise StoreDamaged(f"{damage}; and the previous generation: {worse}") from worse
        try:
            self._set_aside()
            self._replace(self._written)
        except OSError as error:
            raise StoreWriteError(f"{self._path}: {error.strerror or error}") from error
        self.recovered = True
        log.critical("%s: went back to the previous generation; the last change to it may be lost", self._path)
        return tables

    def _set_aside(self) -> None:
        """Keep the damaged file for inspection, under a name that is no generation's."""
        if self._path.exists():
            self._path.rename(self._path.with_name(f"{self._path.name}.damaged-{int(time.time())}"))

    def _load(self, path: Path) -> Tables:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StoreDamaged(f"{path}: {error.strerror or error}") from error
        entries = documents(path, content)
        self._written = content
        return {TABLE: entries}

    # --- writing ---

    def _serialise(self, entries: Mapping[str, Any]) -> bytes:
        """The file's content. The text of what was not altered is there already."""
        texts = self._texts
        altered = entries.keys() if texts is None else self._altered
        self._texts, self._altered, self._fresh = None, set(), {} if texts is None else texts
        for identifier in altered:
            if identifier in entries:
                self._fresh[identifier] = f"{json.dumps(identifier)}:{_json(entries[identifier])}".encode()
            else:
                self._fresh.pop(identifier, None)
        return _sealed(b"".join((b"{", b",\n".join(self._fresh.values()), b"}\n")))

    def _replace(self, content: bytes) -> None:
        fresh = staging_path(self._path)
        try:
            write_synced(fresh, content)
            install(self._path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        self._sync_folder()

    def _sync_folder(self) -> None:
        try:
            sync(self._path.parent)
        except OSError as error:
            # The new file has its name, but whether that survives a crash is unknown: stop before more is built on it.
            self._broken = f"{self._path.parent}: {error.strerror or error}; restart to read what is on disk"
            raise

    def _refuse_when_broken(self) -> None:
        if self._broken is not None:
            raise StoreWriteError(self._broken)

    def _restore(self) -> None:
        """TinyDB has altered the image by the time a write fails; take it from what was written last."""
        self._texts, self._altered, self._changes_known = None, set(), False
        self._image = {TABLE: parse(self._path, self._written) if self._written else {}}


def compose(body: str) -> bytes:
    """The content of a file with this JSON object as its body."""
    return _sealed(body.encode())


def _sealed(body: bytes) -> bytes:
    return f"{_MAGIC} {SCHEMA} {_digest(SCHEMA, body)}\n".encode() + body


def parse(path: Path, content: bytes, hook: Callable[[dict[str, Any]], Any] | None = None) -> dict[str, Any]:
    """The entries in the content of a file. Raises `StoreDamaged`, `StoreTooNew`; `path` is for the text alone.

    `hook` returns what takes the place of each JSON object.
    """
    head, _, body = content.partition(b"\n")
    words = head.split(b" ")
    if len(words) != 3 or words[0] != _MAGIC.encode() or not words[1].isdigit():
        raise StoreDamaged(f"{path}: not a file of the store, or cut short")
    schema = int(words[1])
    if words[2].decode("ascii", "replace") != _digest(schema, body):
        raise StoreDamaged(f"{path}: the checksum does not match; the file was cut short or altered")
    if schema > SCHEMA:
        raise StoreTooNew(f"{path}: schema version {schema}; this release knows up to {SCHEMA}")
    try:
        entries = json.loads(body, object_hook=hook)
    except (ValueError, RecursionError) as error:
        raise StoreDamaged(f"{path}: the checksum matches, but it isn't JSON: {error}") from error
    if not isinstance(entries, dict):
        raise StoreDamaged(f"{path}: the checksum matches, but it holds no entries")
    return entries


def documents(path: Path, content: bytes) -> dict[str, Any]:
    """As `parse`, of a collection: what is no document is damage, too. What bodies contain must not be altered."""
    entries = parse(path, content, _shared_parts())
    if not all(map(_is_entry, entries.values())):
        raise StoreDamaged(f"{path}: the checksum matches, but its entries are no documents")
    return entries


def _shared_parts() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A hook by which small objects that are alike are one: nearly all of thousands of documents have the defaults."""
    known: dict[bytes, dict[str, Any]] = {}

    def shared(made: dict[str, Any]) -> dict[str, Any]:
        if len(made) > SHARED_FIELDS or "body" in made:
            return made
        key = marshal.dumps(made, _WITHOUT_REFERENCES)
        found = known.get(key)
        if found is None:
            found = made
            if len(known) < SHARED_PARTS:
                known[key] = made
        return found

    return shared


def _is_entry(value: Any) -> bool:
    """Is it `{"revision": int, "body": map or None}`?"""
    return (
        isinstance(value, dict)
        and type(value.get("revision")) is int
        and isinstance(value.get("body", ""), dict | None)
    )


def rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Replace the entries of a closed file, and of its previous generation, which would have the old format.

    Raises `StoreDamaged` (also when only the previous generation is good: opening the store repairs that first),
    `StoreTooNew`, `StoreWriteError`.
    """
    try:
        entries = change(parse(path, path.read_bytes()))
        storage = GenerationStorage(path, create=False)
        for _ in ("the previous generation", "this one"):
            storage.write({TABLE: entries})
    except OSError as error:
        raise StoreWriteError(f"{path}: {error.strerror or error}") from error


def staging_path(path: Path) -> Path:
    """Where the next content of a file is written, beside it."""
    return path.with_name(path.name + ".new")


def install(path: Path) -> None:
    """The content beside a file becomes the file, which becomes the previous generation. Raises `OSError`."""
    if path.exists():
        link = path.with_name(path.name + ".link")
        link.unlink(missing_ok=True)
        os.link(path, link)
        link.rename(path.with_name(path.name + ".previous"))
    staging_path(path).rename(path)


def digest_of(content: bytes) -> str:
    """What a whole file is known by."""
    return hashlib.sha256(content).hexdigest()


def _digest(schema: int, body: bytes) -> str:
    digest = hashlib.sha256(b"%d\n" % schema)
    digest.update(body)
    return digest.hexdigest()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
