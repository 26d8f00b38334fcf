"""Files that are on the disk, whole, when the function returns. All raise `OSError`.

Key files are random bytes, made once, mode 0600, in the folder `keys` of the data directory.

The format of a data directory, so that a release that stores something else refuses it.

The file `format` in the directory is one line of JSON:

    {"format": 3, "version": "0.1.0"}

`format` counts up whenever a release stores something that the release before could not read; `version` is the release
that made the directory.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from config import VERSION
from config.files.paths import PathError, private_directory


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
    key = read_keys(path)
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"{path}: {len(key)} bytes instead of {KEY_BYTES}")
    return key


def read_keys(path: Path) -> bytes:
    """The keys in `path`, one or more without anything between them. Raises as `read_key`."""
    try:
        keys = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except ValueError as error:
        raise KeyFileError(f"{path}: not a key file") from error
    if not keys or len(keys) % KEY_BYTES:
        raise KeyFileError(f"{path}: {len(keys)} bytes instead of {KEY_BYTES}")
    return keys


def make_key(path: Path) -> None:
    """A new key, on disk when this returns. Raises `OSError`, `PathError`."""
    private_directory(path.parent)
    replace_file(path, f"{secrets.token_hex(KEY_BYTES)}\n".encode())


DATA_FORMAT = 3
"""The format that this release reads and writes."""
NAME = "format"
_LARGEST = 4096


class DataFormatError(PathError):
    """The data are not for this release; the text has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of the file."""

    format: int = DATA_FORMAT
    version: str = VERSION


def read_mark(folder: Path) -> Mark | None:
    """The mark of a data directory; None when it has none yet.

    Raises `DataFormatError` for a mark that can't be understood or read.
    """
    file = folder / NAME
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataFormatError(f"{file}: {error.strerror or error}") from error
    try:
        found = json.loads(content)
        number, version = found["format"], found["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise _unclear(file) from error
    if type(number) is not int or number < 1 or not isinstance(version, str):
        raise _unclear(file)
    return Mark(number, version)


def write_mark(folder: Path, mark: Mark) -> None:
    """Put the mark in place, whole or not at all, and on disk when this returns. Raises `OSError`."""
    content = {"format": mark.format, "version": mark.version}
    replace_file(folder / NAME, f"{json.dumps(content)}\n".encode())


def require_own_format(folder: Path) -> Mark | None:
    """The mark of `folder`, if this release may use the data there; nothing is touched. Raises `DataFormatError`."""
    mark = read_mark(folder)
    if mark is not None and mark.format != DATA_FORMAT:
        raise DataFormatError(
            f"the data in {folder} have format {mark.format}, of Proxyfleet {mark.version}; this is {VERSION}, which"
            f" reads format {DATA_FORMAT}. Install {mark.version}, or restore a backup of format {DATA_FORMAT}; nothing"
            " was changed"
        )
    return mark


def mark_new(folder: Path) -> None:
    """Mark a directory that has no mark yet, before anything is stored in it. Raises `DataFormatError`."""
    if require_own_format(folder) is not None:
        return
    try:
        write_mark(folder, Mark())
    except OSError as error:
        raise DataFormatError(f"{folder / NAME}: {error.strerror or error}") from error


def _unclear(file: Path) -> DataFormatError:
    return DataFormatError(f"{file}: does not say which format the data have; restore it from a backup")
