"""Where an archive goes: checked before anything is copied; and a private staging folder beside it.

The folder is locked while it is in use. One that a killed process left behind has copies of the configuration in it;
the next backup to the same place deletes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api.backup.archive import open_archive
from api.backup.manifest import BadArchive
from config.files.paths import DataDir

_STAGING = ".proxyfleet-backup-"
_FRESH = 60.0
"""Seconds for which a folder may be there and not be locked yet."""


class BadTarget(Exception):
    """No archive is written there; the text says why."""


def check_target(file: Path, data: DataDir) -> None:
    """Raise `BadTarget` when an archive of `data` may not be put at `file`, and `OSError` when that can't be found out.

    A file is only replaced when it is an archive, too, or empty.
    """
    if not file.parent.is_dir():
        raise BadTarget(f"{file.parent}: there is no such directory")
    if file.parent.resolve().is_relative_to(data.path.resolve()):
        raise BadTarget(f"{file}: is inside of the data directory, and would be lost with it; choose another place")
    if file.is_symlink():
        raise BadTarget(f"{file}: is a symbolic link; name the file that it leads to")
    if file.exists() and not _may_be_replaced(file):
        raise BadTarget(f"{file}: is there already, and is no backup; choose another name")


def _may_be_replaced(file: Path) -> bool:
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        return False
    try:
        with open_archive(file):
            return True
    except BadArchive:
        return status.st_size == 0


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A private folder in `folder` for the time of the block. Raises `OSError`."""
    _remove_abandoned(folder)
    made = Path(tempfile.mkdtemp(dir=folder, prefix=_STAGING))
    held = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some file systems of other machines lock no folders
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)  # the next one tries again
        os.close(held)


def _remove_abandoned(folder: Path) -> None:
    """Remove staging folders that no process has locked."""
    for path in folder.glob(f"{_STAGING}*"):
        status = path.lstat()
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
        if ours and abs(time.time() - status.st_mtime) > _FRESH and _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it is in use, or locks don't work there
        return False
    finally:
        os.close(held)
    return True
