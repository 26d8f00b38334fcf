"""The accounts that have used most, for series of their own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from actors.sqlite import open_for_reading

_SQL = """
SELECT id, username, total_in, total_out FROM accounts WHERE NOT gone AND total_in + total_out > 0 AND id LIKE 'acc%'
ORDER BY total_in + total_out DESC, id LIMIT ?
"""


class TopAccount(NamedTuple):
    """An account, and the bytes that it has used in all."""

    id: str
    username: str
    bytes_in: int
    bytes_out: int


def top_accounts(file: Path, count: int) -> list[TopAccount]:
    """Those that have used most, by the collector's file. Raises `sqlite3.Error`."""
    if not count or not file.exists():
        return []
    with closing(open_for_reading(file)) as database:
        return [TopAccount(*row) for row in database.execute(_SQL, [count])]
