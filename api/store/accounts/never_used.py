"""Accounts of which the metrics collector has no row, while they are few among many.

To find them takes a walk over all accounts, so they are remembered. They become fewer when they are used, which is
verified each time, and more only by new accounts, whose revisions are above.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence

READ = 500
"""Accounts that are looked up at once."""
MANY = 60.0
"""Seconds after which it is looked again whether they are few."""
_UNKNOWN = "NOT EXISTS (SELECT 1 FROM collector.accounts AS figures WHERE figures.id = main.accounts.id)"


class NeverUsed:
    """Remembers them. May be called by several threads: what is remembered is replaced as a whole."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: tuple[int, int, list[str]] | None = None
        self._many_until = 0.0

    def of(self, database: sqlite3.Connection, collector: int, few: int) -> list[str] | None:
        """Their ids; None when there are more than `few`.

        `database` has both files in one snapshot; `collector` is another number for another file of the collector.
        """
        known = self._found if self._found is not None and self._found[0] == collector else None
        if known is None and self._clock() < self._many_until:
            return None
        (top,) = database.execute("SELECT ifnull(max(revision), 0) FROM main.accounts").fetchone()
        found = _all(database, few) if known is None else _verified(database, known[1], known[2], few)
        if len(found) > few:
            self._found, self._many_until = None, self._clock() + MANY
            return None
        self._found = collector, top, found
        return found


def _all(database: sqlite3.Connection, few: int) -> list[str]:
    return _ids(database, f"SELECT id FROM main.accounts WHERE {_UNKNOWN} LIMIT ?", [few + 1])  # noqa: S608 - ours


def _verified(database: sqlite3.Connection, revision: int, known: Sequence[str], few: int) -> list[str]:
    """Those of the known ones and of the accounts behind a revision."""
    found = set(
        _ids(
            database,
            f"SELECT id FROM main.accounts WHERE revision > ? AND {_UNKNOWN} LIMIT ?",  # noqa: S608 - ours
            [revision, few + 1],
        )
    )
    for begin in range(0, len(known), READ):
        part = known[begin : begin + READ]
        marks = ", ".join("?" * len(part))
        found.update(_ids(database, f"SELECT id FROM main.accounts WHERE id IN ({marks}) AND {_UNKNOWN}", part))  # noqa: S608 - marks alone
    return list(found)


def _ids(database: sqlite3.Connection, sql: str, values: Sequence[object]) -> list[str]:
    return [str(each) for (each,) in database.execute(sql, values)]
