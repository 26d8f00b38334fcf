"""How long records are kept: whole days are deleted, the oldest first, when they are too old or take too much room.

The file that is written is never deleted. When it alone takes too much, its oldest blocks go; their room in the file
is used again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from actors.logs.blocks import day_of
from actors.logs.dayfile import DATABASE_SUFFIXES
from actors.logs.index import LogIndex

log = logging.getLogger(__name__)

DAY = 86_400.0
PERIOD = 60.0
"""Seconds between two checks."""


def retain(index: LogIndex, days: int, size: int, clock: Callable[[], float] = time.time) -> None:
    """Keep the records of `days` days before today, and at most `size` bytes of them; 0: any number.

    Raises `OSError` and `sqlite3.Error`.
    """
    first = day_of(max(0.0, clock() - days * DAY))
    for path in _deletable(index):
        if path.name[:10] < first:
            _delete(path, f"older than {days} days")
    if size > 0:
        _fit(index, size)


def _fit(index: LogIndex, size: int) -> None:
    taken = sum(_size(path) for path in (*_deletable(index), index.path))
    for path in _deletable(index):
        if taken <= size:
            return
        taken -= _size(path)
        _delete(path, f"more than {size} bytes")
    dropped = index.shrink(size)
    if dropped:
        log.warning("deleted the %d oldest access records of today: more than %d bytes", dropped, size)


def _deletable(index: LogIndex) -> list[Path]:
    """The oldest first."""
    folder = index.path.parent
    found = [*folder.glob("????-??-??.sqlite"), *folder.glob("????-??-??.jsonl"), *folder.glob("????-??-??.log")]
    today = index.path.stem
    return sorted(path for path in found if path.stem != today)


def _size(path: Path) -> int:
    """With what SQLite has not yet written into it."""
    return _length(path) + _length(path.with_name(f"{path.name}-wal"))


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _delete(path: Path, why: str) -> None:
    for end in DATABASE_SUFFIXES:
        path.with_name(path.name + end).unlink(missing_ok=True)
    log.info("deleted the access records in %s: %s", path.name, why)
