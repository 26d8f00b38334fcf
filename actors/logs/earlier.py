"""Day files of before there were blocks: a table with a row for each record. It is packed at the start."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

from actors.logs.dayfile import BLOCK_ROWS, DayFile
from actors.logs.record_schema import empty_record, sound
from config.text.access_fields import ACCESS_FIELDS


def pack_earlier(paths: list[Path]) -> None:
    """Pack what lies in such tables of these files, of which the oldest comes first. Raises `sqlite3.Error`.

    Their records get numbers from 1 on, below all that are given out now. A process that dies meanwhile loses none and
    stores none twice: the next one goes on.
    """
    last = 0
    for path in paths:
        columns = _columns(path)
        if columns:
            file = DayFile(path)
            try:
                last = _pack(file, path, columns, max(last, file.last))
            finally:
                file.close()


def _pack(file: DayFile, path: Path, columns: list[str], last: int) -> int:
    known = [name for name in ACCESS_FIELDS if name in columns]
    page = f"SELECT number, {', '.join(known)} FROM records ORDER BY number LIMIT {BLOCK_ROWS}"  # noqa: S608 - our own names
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        while found := database.execute(page).fetchall():
            rows = sound([list((empty_record() | dict(zip(known, row[1:], strict=True))).values()) for row in found])
            if rows:
                file.put_block(last + 1, rows, partial(_delete, found[-1][0]))
            else:
                _delete(found[-1][0], database)
            last += len(rows)
        database.execute("DROP TABLE records")
    return last


def _delete(number: int, database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM records WHERE number <= ?", (number,))


def _columns(path: Path) -> list[str]:
    """Of the table, if there is one. Of a damaged file nothing can be packed; who opens it says so."""
    with closing(sqlite3.connect(path)) as database:
        try:
            return [row[1] for row in database.execute("PRAGMA table_info(records)")]
        except sqlite3.DatabaseError:
            return []
