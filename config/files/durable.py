"""Files that are on the disk, whole, when the function returns. All raise `OSError`.

Key files are random bytes, made once, mode 0600, in the folder `keys` of the data directory.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from config.files.paths import private_directory


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


KEY_BYTES = 32


class KeyFileError(Exception):
    """There is no key in this file; the text says which file and why."""


def read_key(path: Path) -> bytes:
    """The key in `path`. Raises `KeyFileError` when it isn't one, `OSError` when it can't be read."""
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except ValueError as error:
        raise KeyFileError(f"{path}: not a key file") from error
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"{path}: {len(key)} bytes instead of {KEY_BYTES}")
    return key


def make_key(path: Path) -> None:
    """A new key, on disk when this returns. Raises `OSError`, `PathError`."""
    private_directory(path.parent)
    replace_file(path, f"{secrets.token_hex(KEY_BYTES)}\n".encode())
