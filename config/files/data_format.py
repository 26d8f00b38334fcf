"""The format of a data directory, so that a release that stores something else refuses it.

The file `format` in the directory is one line of JSON:

    {"format": 3, "version": "0.1.0"}

`format` counts up whenever a release stores something that the release before could not read; `version` is the release
that made the directory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from config import VERSION
from config.files.durable import replace_file
from config.files.paths import PathError

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
