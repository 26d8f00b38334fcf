"""Files that are on the disk, whole, when the function returns. All raise `OSError`."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, content: bytes) -> None:
    """A new file, 0600, with this content; its name is durable when its folder was synced, too."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """The file has this content or, after a crash at whatever moment, the one before."""
    fresh = path.with_name(path.name + ".new")
    write_synced(fresh, content)
    fresh.rename(path)
    sync(path.parent)
