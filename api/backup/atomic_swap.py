"""Putting restored folders in the place of those that are there, so that a kill leaves the one or the other.

The new folders are made in `restoring/new`. Renaming that to `restoring/ready` is the moment of the restore: before it
nothing has happened; after it `finish` moves folder by folder, and completes what a kill has cut off. The product and
the offline commands call it before they read anything. The state before is kept beside; `PREVIOUS_MAX` stay.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from config.files.durable import sync
from config.files.paths import DataDir

RESTORING = "restoring"
PREVIOUS_MAX = 2
"""How many `before-restore-…` are kept."""

_BEFORE = "before-restore-"


@dataclass(frozen=True, slots=True)
class CompletedRestore:
    """A restore that is done. `kept` is where the old state is; None when there was none."""

    kept: Path | None


def begin(data: DataDir) -> Path:
    """An empty folder for the restored data; what an earlier attempt left there is deleted. Raises `OSError`."""
    folder = data.path / RESTORING
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "new").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    return folder / "new"


def discard(data: DataDir) -> None:
    """Delete what `begin` made, if it is there."""
    shutil.rmtree(data.path / RESTORING, ignore_errors=True)


def commit(data: DataDir) -> CompletedRestore:
    """Make the restore happen, durably. Raises `OSError`."""
    folder = data.path / RESTORING
    _sync_tree(folder / "new")
    (folder / "new").rename(folder / "ready")
    sync(folder)
    sync(data.path)
    done = finish(data)
    assert done is not None
    return done


def finish(data: DataDir) -> CompletedRestore | None:
    """Complete a restore that was committed; delete one that was not and return None.

    The caller holds the lock of the data directory. Raises `OSError`.
    """
    folder = data.path / RESTORING
    ready, old = folder / "ready", folder / "old"
    if not ready.is_dir():
        if not old.is_dir():
            discard(data)
            return None
    else:
        old.mkdir(mode=0o700, exist_ok=True)
        for log in (f"{data.fleet.name}-wal", f"{data.fleet.name}-shm"):
            _set_aside(data.path / log, old)  # before the file, since they don't belong to the restored one
        for fresh in sorted(ready.iterdir()):
            _exchange(data.path / fresh.name, fresh, old / fresh.name)
        _set_aside(data.initial_password, old)
        sync(old)
        sync(data.path)
        ready.rmdir()
    kept = _keep_previous(data, old) if any(old.iterdir()) else None
    discard(data)
    return CompletedRestore(kept)


def _exchange(place: Path, fresh: Path, old: Path) -> None:
    if place.exists() and not old.exists():
        place.rename(old)
    fresh.rename(place)


def _set_aside(file: Path, old: Path) -> None:
    """Move a file that the restored state does not have to the old one; if that has it, this one was restored."""
    if file.exists() and not (old / file.name).exists():
        file.rename(old / file.name)


def _keep_previous(data: DataDir, old: Path) -> Path:
    kept = _free_name(data)
    old.rename(kept)
    sync(data.path)
    earlier = sorted(path for path in data.path.glob(f"{_BEFORE}*") if path != kept)
    for path in earlier[: len(earlier) + 1 - PREVIOUS_MAX]:
        shutil.rmtree(path, ignore_errors=True)  # the next restore tries again
    return kept


def _free_name(data: DataDir) -> Path:
    stem = time.strftime(f"{_BEFORE}%Y%m%dT%H%M%SZ", time.gmtime())
    names = (data.path / (stem if number == 0 else f"{stem}-{number}") for number in range(1000))
    return next(name for name in names if not name.exists())


def _sync_tree(root: Path) -> None:
    for folder, _, files in os.walk(root):
        for name in files:
            sync(Path(folder) / name)
        sync(Path(folder))
