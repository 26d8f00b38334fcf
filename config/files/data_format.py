"""The format of a data directory, so that an older program refuses the data of a newer one.

The file `format` in the directory is one line of JSON:

    {"format": 1, "version": "0.1.0"}

`format` counts up whenever a release stores something that the release before could not read; `version` is the release
that made or brought the data to it. A directory that has no such file but data was written before there was one, and
counts as format 1. While an upgrade of the data is being put in place, the line also has `installing`
(`api.store.migration`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import VERSION
from config.files.durable import replace_file
from config.files.paths import DataDir, PathError

FIRST = 1
NAME = "format"
_LARGEST = 4096


class DataFormatError(PathError):
    """The data are not for this program, or can't be migrated to its format; the text has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Installing:
    """An upgrade whose parts may not all be in place: the format it came from, and the names in the directory."""

    origin: int
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """The content of the file."""

    format: int
    version: str = VERSION
    installing: Installing | None = None


def read_mark(folder: Path) -> Mark | None:
    """The mark of a data directory; None when there are no data yet.

    Raises `DataFormatError` for a mark that can't be understood, `OSError` when it can't be read.
    """
    file = folder / NAME
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST)
    except FileNotFoundError:
        return Mark(FIRST, "0.1.0") if _has_data(folder) else None
    try:
        return _mark(json.loads(content))
    except (ValueError, KeyError, TypeError) as error:
        raise DataFormatError(f"{file}: does not say which format the data have; restore it from a backup") from error


def write_mark(folder: Path, mark: Mark) -> None:
    """Put the mark in place, whole or not at all, and on disk when this returns. Raises `OSError`."""
    content: dict[str, Any] = {"format": mark.format, "version": mark.version}
    if mark.installing is not None:
        content["installing"] = {"from": mark.installing.origin, "parts": list(mark.installing.parts)}
    replace_file(folder / NAME, f"{json.dumps(content)}\n".encode())


def refuse_newer(folder: Path, known: int) -> Mark | None:
    """The mark of `folder` if this program, which knows formats up to `known`, may use it; nothing is touched.

    Raises `DataFormatError` when the data are newer, or when the file can't be read.
    """
    try:
        mark = read_mark(folder)
    except OSError as error:
        raise DataFormatError(f"{folder / NAME}: {error.strerror or error}") from error
    if mark is not None and mark.format > known:
        raise DataFormatError(
            f"the data in {folder} have format {mark.format}, since Proxyfleet {mark.version}; this is {VERSION}, which"
            f" knows up to format {known}. Install {mark.version} or newer, or restore a backup of format {known};"
            " nothing was changed"
        )
    return mark


def _has_data(folder: Path) -> bool:
    """Either of these is made at the first start before anything else is stored."""
    data = DataDir(folder)
    return any(each.is_dir() and any(each.iterdir()) for each in (data.store, data.keys))


def _mark(content: dict[str, Any]) -> Mark:
    if not isinstance(content["version"], str):
        raise TypeError(content)
    installing = content.get("installing")
    return Mark(_number(content["format"]), content["version"], None if installing is None else _installing(installing))


def _installing(content: dict[str, Any]) -> Installing:
    parts = tuple(str(part) for part in content["parts"])
    if any(part in ("", ".", "..") or "/" in part for part in parts):
        raise ValueError(parts)
    return Installing(_number(content["from"]), parts)


def _number(value: Any) -> int:
    if type(value) is not int or value < FIRST:
        raise ValueError(value)
    return value
