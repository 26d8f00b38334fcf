"""Files that are on the disk, whole, when the function returns. All raise `OSError`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A new file, 0600, whose content is durable at the end of the block. Raises `FileExistsError`.

    Its name is durable when its folder was synced, too.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(descriptor)


def write_synced(path: Path, content: bytes) -> None:
    """A new file with this content, as `new_file`, in place of one that is there."""
    path.unlink(missing_ok=True)
    with new_file(path) as file:
        file.write(content)


def replace_file(path: Path, content: bytes) -> None:
    """The file has this content or, after a crash at whatever moment, the one before."""
    fresh = path.with_name(path.name + ".new")
    write_synced(fresh, content)
    fresh.rename(path)
    sync(path.parent)


def replace_file_of_user(path: Path, content: bytes) -> None:
    """As `replace_file`, in a folder where any other name may be a user's file: the new file gets a name of its own."""
    fresh = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    try:
        with new_file(fresh) as file:
            file.write(content)
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync(path.parent)
