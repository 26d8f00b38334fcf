"""Migrates a data directory to the format of this program, at its start.

The steps from the directory's format to this program's work on copies of the parts (folders and files of the data
directory) that they alter, in `upgrade`. When all of them are done and on disk, one rename of the file `format`
(`config.files.data_format`) decides: before it the data are the old ones, every file of them; after it they are the new
ones, and what remains is to move the parts: the old ones to `before-<format>`, the copies to their places. A start that
finds that unfinished finishes it. So whenever the program is killed, the next start continues from the old data or with
the new; an older program reads the old data up to that rename, and refuses the new ones from there on.

`before-<format>` is the operator's way back; the newest `KEPT` of them stay. The access records are in no step: their
day files are migrated one by one, when they are opened (`actors.sqlite`).
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from api.store.interface import StoreError
from config import VERSION
from config.files.data_format import FIRST, NAME, DataFormatError, Installing, Mark, refuse_newer, write_mark
from config.files.durable import sync
from config.files.paths import DataDir

log = logging.getLogger(__name__)

KEPT = 2
"""How many `before-<format>` are kept."""

_STAGE = "upgrade"
_BEFORE = "before-"


@dataclass(frozen=True, slots=True)
class Step:
    """From one format to the next. `about` is for the log; `parts` are the names that `apply` may alter or make.

    `apply` is called with a directory that holds copies of these parts, as far as there are any; the others are not
    there. It leaves none of them out at its end. It may raise `OSError`, `sqlite3.Error`, `ValueError`, `LookupError`
    and `StoreError`, and then nothing has happened to the data.
    """

    about: str
    parts: tuple[str, ...]
    apply: Callable[[Path], None]


def newest_format(steps: Sequence[Step]) -> int:
    """The format that the last step leads to."""
    return FIRST + len(steps)


def bring_up_to_date(data: DataDir, steps: Sequence[Step]) -> None:
    """Migrate the data to this program's format. The caller holds the lock of the data directory.

    Raises `DataFormatError` when they are newer, or when a step fails or the disk doesn't take it; the text says what
    they are then.
    """
    wanted = newest_format(steps)
    mark = refuse_newer(data.path, wanted)
    if mark is None:
        _mark_new(data.path, wanted)
        return
    if mark.installing is not None:
        mark = _complete(data.path, mark, mark.installing)
    _remove_if_possible(data.path / _STAGE)
    if mark.format < wanted:
        _upgrade(data.path, mark, steps[mark.format - FIRST :])
    else:
        _mark_unmarked(data.path, mark)


def missing_space(data: DataDir, mark: Mark, steps: Sequence[Step]) -> int:
    """Bytes that the disk lacks for the copies that the steps from `mark` on work on; 0 or less when it has them.

    Twice what is there: steps may make it larger.
    """
    parts = {part for step in steps[mark.format - FIRST :] for part in step.parts}
    sizes = (path.stat().st_size for part in parts for path in _files(data.path / part))
    return 2 * sum(sizes) - shutil.disk_usage(data.path).free if parts else 0


def _upgrade(folder: Path, mark: Mark, steps: Sequence[Step]) -> None:
    installing = Installing(mark.format, tuple(dict.fromkeys(part for step in steps for part in step.parts)))
    to = Mark(mark.format + len(steps), VERSION, installing)
    log.info("migrating data in %s from format %d to %d", folder, mark.format, to.format)
    try:
        _prepare(folder, mark, steps, installing)
    except (OSError, sqlite3.Error, ValueError, LookupError, StoreError) as error:
        _remove_if_possible(folder / _STAGE)
        reason = _reason(error)
        raise DataFormatError(
            f"the data in {folder} could not be brought from format {mark.format} to {to.format}: {reason}; they are"
            " as they were"
        ) from error
    try:
        write_mark(folder, to)
    except OSError as error:  # is it in place or not? The next start knows, so the stage stays
        raise DataFormatError(f"{folder / NAME}: {_reason(error)}; the next start goes on") from error
    _complete(folder, to, installing)


def _prepare(folder: Path, mark: Mark, steps: Sequence[Step], installing: Installing) -> None:
    """Copies of the parts as the last step leaves them, and an empty `before-<format>`; both on disk."""
    stage, before = folder / _STAGE, _before(folder, mark.format)
    stage.mkdir(mode=0o700)
    for part in installing.parts:
        _copy(folder / part, stage / part)
    for number, step in enumerate(steps, start=mark.format + 1):
        log.info("format %d: %s", number, step.about)
        step.apply(stage)
    if before.exists():  # of an upgrade that was taken back: these data are what was, now
        shutil.rmtree(before)
    before.mkdir(mode=0o700)
    write_mark(before, mark)
    for path in [*_everything(stage), stage, folder]:
        sync(path)


def _complete(folder: Path, mark: Mark, installing: Installing) -> Mark:
    """Put the parts of a migration that was decided in place; the mark without it."""
    done = Mark(mark.format, mark.version)
    try:
        _install(folder, installing)
        write_mark(folder, done)
    except OSError as error:
        raise DataFormatError(f"{folder}: {_reason(error)}; the next start goes on with the upgrade") from error
    before = _before(folder, installing.origin)
    log.info(
        "the data have format %d now; what they were in format %d is kept in %s", mark.format, installing.origin, before
    )
    _remove_if_possible(folder / _STAGE)
    for number in _befores(folder)[:-KEPT]:
        _remove_if_possible(_before(folder, number))
    return done


def _install(folder: Path, installing: Installing) -> None:
    """Move the parts. What is no longer in the stage is in its place already."""
    stage, before = folder / _STAGE, _before(folder, installing.origin)
    for needed in (stage, before):  # they go only after the mark says that all is done
        needed.stat()
    for part in installing.parts:
        if not (stage / part).exists():
            continue
        if (folder / part).exists():
            (folder / part).rename(before / part)
        (stage / part).rename(folder / part)
    for path in (before, folder):
        sync(path)


def _mark_new(folder: Path, wanted: int) -> None:
    try:
        write_mark(folder, Mark(wanted))
    except OSError as error:
        raise DataFormatError(f"{folder / NAME}: {_reason(error)}") from error


def _mark_unmarked(folder: Path, mark: Mark) -> None:
    """Of format 1 without a mark: give it one. A full disk is no reason not to start, since the meaning is the same."""
    if (folder / NAME).exists():
        return
    try:
        write_mark(folder, mark)
    except OSError as error:
        log.warning("%s: the format of the data can't be noted yet: %s", folder, _reason(error))


# --- files ---


def _copy(source: Path, target: Path) -> None:
    """Copy a part whose databases are closed: with each `-wal`, which counts, and without `-shm`, which is made
    anew."""
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("*-shm"))
    elif source.exists():
        shutil.copy2(source, target)


def _everything(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if not path.is_symlink())


def _files(part: Path) -> Iterator[Path]:
    return (path for path in (part, *part.rglob("*")) if path.is_file())


def _before(folder: Path, number: int) -> Path:
    return folder / f"{_BEFORE}{number}"


def _befores(folder: Path) -> list[int]:
    """The formats of which the old data are kept, in order."""
    names = (path.name.removeprefix(_BEFORE) for path in folder.glob(f"{_BEFORE}*"))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _remove_if_possible(path: Path) -> None:
    """Delete what is no longer needed. If that fails, the next start tries again."""
    shutil.rmtree(path, ignore_errors=True)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
