"""Putting restored folders in the place of those that are there, so that a kill leaves the one or the other.

The new folders are made in `restoring/new`. Renaming that to `restoring/ready` is the moment of the restore: before it
nothing has happened; after it `finish` moves folder by folder, as often as it has to be begun again. The product and
the offline commands call it before they read anything. What was there before is kept beside, until somebody removes it.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from config.paths import DataDir, forget_initial_password

RESTORING = "restoring"


def begin(data: DataDir) -> Path:
    """An empty folder for what is to come; what an earlier attempt left there is gone. Raises `OSError`."""
    folder = data.path / RESTORING
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "new").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    return folder / "new"


def give_up(data: DataDir) -> None:
    """Forget what `begin` began; harmless when there is nothing."""
    shutil.rmtree(data.path / RESTORING, ignore_errors=True)


def commit(data: DataDir) -> Path:
    """From now on it is restored. Returns where the old state is kept. Raises `OSError`."""
    folder = data.path / RESTORING
    _sync_tree(folder / "new")
    (folder / "new").rename(folder / "ready")
    _sync(folder)
    _sync(data.path)
    kept = finish(data)
    assert kept is not None
    return kept


def finish(data: DataDir) -> Path | None:
    """Complete a restore that was committed; forget one that was not. Where the old state is, if one was completed.

    The caller holds the lock of the data directory. Raises `OSError`.
    """
    folder = data.path / RESTORING
    ready, old = folder / "ready", folder / "old"
    if not ready.is_dir():
        if not old.is_dir():
            give_up(data)
            return None
    else:
        old.mkdir(mode=0o700, exist_ok=True)
        for fresh in sorted(ready.iterdir()):
            _exchange(data.path / fresh.name, fresh, old / fresh.name)
        forget_initial_password(data)
        _sync(data.path)
        ready.rmdir()
    kept = _free_name(data)
    old.rename(kept)
    _sync(data.path)
    give_up(data)
    return kept


def _exchange(place: Path, fresh: Path, old: Path) -> None:
    if place.exists() and not old.exists():
        place.rename(old)
    fresh.rename(place)


def _free_name(data: DataDir) -> Path:
    stem = time.strftime("before-restore-%Y%m%dT%H%M%SZ", time.gmtime())
    names = (data.path / (stem if number == 0 else f"{stem}-{number}") for number in range(1000))
    return next(name for name in names if not name.exists())


def _sync_tree(root: Path) -> None:
    for folder, _, files in os.walk(root):
        for name in files:
            _sync(Path(folder) / name, os.O_RDONLY)
        _sync(Path(folder))


def _sync(path: Path, flags: int = os.O_RDONLY | os.O_DIRECTORY) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
