"""A change over several collections that is whole or never was, whatever stops it in the middle.

Every new file is written beside its collection and synced. Then the journal gets its name: one small file that lists
the collections and the digests of their new files. From that moment on, and not before, the change is made: the new
files take their places, and the journal goes. A start that finds a journal puts in place what isn't there yet; a start
that finds none leaves the new files alone, and the next write replaces them.

What can fail for want of space fails before the journal has its name. When the disk refuses something after that, it
is unknown what a restart will find, so nothing more is written until then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from api.store.interface import StoreDamaged, StoreWriteError
from api.store.storage import (
    GenerationStorage,
    compose,
    digest_of,
    documents,
    install,
    parse,
    staging_path,
)
from config.files.durable import sync, write_synced

log = logging.getLogger(__name__)

_JOURNAL = "journal.json"


@contextmanager
def together(folder: Path, storages: Sequence[GenerationStorage]) -> Iterator[None]:
    """What is written to these storages within the block reaches the disk at its end, all of it or nothing.

    Raises `StoreWriteError`, and whatever the block raises; then the storages hold what they held before. One storage
    alone needs no journal: its file is replaced whole.
    """
    if len(storages) == 1:
        with _alone(storages[0]):
            yield
        return
    try:
        for each in storages:
            each.begin()
        yield
        _prepare(folder, storages)
    except OSError as error:
        _abandon(storages)
        raise StoreWriteError(f"{folder}: {error.strerror or error}") from error
    except BaseException:
        _abandon(storages)
        raise
    _carry_out(folder, storages)


@contextmanager
def _alone(storage: GenerationStorage) -> Iterator[None]:
    storage.begin()
    try:
        yield
    except BaseException:
        storage.abandon()
        raise
    storage.finish()


def complete(folder: Path) -> None:
    """Finish a change that a crash has cut off after it was made. Raises `StoreDamaged`, `StoreTooNew`."""
    journal = folder / _JOURNAL
    if not journal.exists():
        return
    try:
        for name, digest in parse(journal, journal.read_bytes()).items():
            if Path(name).name != name:
                raise StoreDamaged(f"{journal}: names {name!r}, which is no file beside it")
            _complete_one(folder / name, digest)
        _forget(folder)
    except OSError as error:
        raise StoreWriteError(f"{journal}: {error.strerror or error}") from error
    log.warning("%s: a change that was cut off in its middle is complete now", folder)


def check_files(folder: Path) -> None:
    """Raise `StoreDamaged` or `StoreTooNew` when a file of a store isn't whole, and `OSError`.

    Previous generations don't count: opening the store would fall back to one, and lose the last change.
    """
    for path in sorted(folder.glob("*.json")):
        read = parse if path.name == _JOURNAL else documents
        read(path, path.read_bytes())


def _complete_one(path: Path, digest: str) -> None:
    if _has(path, digest):
        return
    if not _has(staging_path(path), digest):
        raise StoreDamaged(f"{path}: a change over several files is half made, and the rest of it is gone; restore it")
    install(path)


def _has(path: Path, digest: str) -> bool:
    return path.exists() and digest_of(path.read_bytes()) == digest


def _prepare(folder: Path, storages: Sequence[GenerationStorage]) -> None:
    """Everything that may fail and leave no trace. Raises `OSError`."""
    try:
        digests = {each.path.name: each.stage() for each in storages}
        write_synced(staging_path(folder / _JOURNAL), compose(json.dumps(digests)))
        sync(folder)
        staging_path(folder / _JOURNAL).rename(folder / _JOURNAL)
    except OSError:
        for path in (*(each.path for each in storages), folder / _JOURNAL):
            staging_path(path).unlink(missing_ok=True)
        raise


def _carry_out(folder: Path, storages: Sequence[GenerationStorage]) -> None:
    """From the journal's name on. Raises `StoreWriteError` when it is unknown what a restart will find."""
    try:
        sync(folder)
        for each in storages:
            each.install()
        _forget(folder)
    except OSError as error:
        text = f"{folder}: {error.strerror or error}; restart to read what is on disk"
        _abandon(storages, text)
        raise StoreWriteError(text) from error
    for each in storages:
        each.commit()


def _forget(folder: Path) -> None:
    """The new files are durable before the journal goes, and its going before anything else is written."""
    sync(folder)
    (folder / _JOURNAL).unlink()
    sync(folder)


def _abandon(storages: Sequence[GenerationStorage], broken: str | None = None) -> None:
    for each in storages:
        each.abandon(broken)
