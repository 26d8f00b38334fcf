"""Pages of accounts in the order of what they have used, or when they were used last.

The figures are in the file of the metrics collector, which is attached to a connection that only reads. Accounts with a
figure are found in that file's indexes in their order; all others, whose figure is 0, come in the order of their ids.
"""

from __future__ import annotations

import heapq
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.sqlite import open_for_reading
from api.store.accounts.pages import AccountSelection, Position, Sort
from config.model.choices import PERIODS, period_at

FEW = 2000
"""Accounts that are sorted by themselves: filters that only so many match would make a walk along an index long."""
READ = 500
"""Accounts whose figures are looked up at once."""
_Term = tuple[str, list[Any]]
_JOINED = "main.accounts ON main.accounts.id = figures.id"
_INDEX = "main.accounts INDEXED BY accounts_by_name"
_NO_USAGE = """
ATTACH ':memory:' AS collector;
CREATE TABLE collector.accounts (id TEXT PRIMARY KEY, period TEXT, since REAL, used INTEGER, last_seen REAL);
CREATE INDEX collector.accounts_by_usage ON accounts (period, since, used, id);
CREATE INDEX collector.accounts_by_last_seen ON accounts (last_seen, id);
"""


def positions_by_figure(
    file: Path,
    usage: Path,
    selection: AccountSelection,
    after: Position | None,
    limit: int,
    never_used: NeverUsed,
) -> list[Position]:
    """Figures and ids of a page. Raises `sqlite3.Error`; a collector that has no file yet has counted nothing."""
    with closing(open_for_reading(file)) as database:
        collector = usage.stat().st_ino if selection.figures is None and usage.exists() else 0
        if collector:
            database.execute("ATTACH ? AS collector", [f"{usage.absolute().as_uri()}?mode=ro"])
        else:
            database.executescript(_NO_USAGE)
            now = (selection.figures or {}).items()
            database.executemany("INSERT INTO collector.accounts (id, last_seen) VALUES (?, ?)", now)
            database.commit()
        database.execute("BEGIN")
        search = _Search(database, selection, _order(selection.sort, time.time()))

        def never() -> list[str] | None:
            return None if selection.figures is not None else never_used.of(database, collector, FEW)

        return list(_positions(search, after, limit, never))


def figures_of(usage: Path, sort: Sort, identifiers: Sequence[str]) -> dict[str, Any]:
    """The figures of these accounts by id; 0 is left out. Raises `sqlite3.Error`."""
    if not usage.exists():
        return {}
    order, found = _order(sort, time.time()), dict[str, Any]()
    ranges = " OR ".join(f"({term})" for term, _ in order.ranges)
    bound = [value for _, values in order.ranges for value in values]
    with closing(open_for_reading(usage)) as database:
        for part, marks in _parts(identifiers):
            sql = (
                f"SELECT id, {order.column} FROM accounts AS figures"  # noqa: S608 - names are ours, values are bound
                f" WHERE id IN ({marks}) AND {order.column} > 0 AND ({ranges})"
            )
            found.update(database.execute(sql, [*part, *bound]).fetchall())
    return found


def _positions(
    search: _Search, after: Position | None, limit: int, never_used: Callable[[], list[str] | None]
) -> Iterator[Position]:
    few = search.matching_few()
    if few is not None:
        yield from search.sorted_few(few, after, limit)
        return
    used_first = search.descending
    if used_first:
        found = search.used(after, limit) if after is None or after[0] > 0 else []
        yield from found
        limit -= len(found)
        after = None if after is None or after[0] > 0 else after
    if limit and (after is None or after[0] == 0):
        found = search.unused(after, limit, never_used)
        yield from found
        limit -= len(found)
        after = None
    if limit and not used_first:
        yield from search.used(after, limit)


@dataclass(frozen=True, slots=True)
class _Order:
    """A column of the collector, its index, and the ranges of the index that have figures of the present, or none."""

    column: str
    index: str
    ranges: tuple[_Term, ...]
    without: tuple[_Term, ...]


def _order(sort: Sort, now: float) -> _Order:
    if sort != "usage":
        return _Order("last_seen", "accounts_by_last_seen", (("1", []),), (("figures.last_seen <= 0", []),))
    ranges = [("figures.period = ? AND figures.since = ?", [kind, period_at(kind, now)[0]]) for kind in PERIODS]
    without = [
        (f"figures.period = ? AND figures.since {rest}", [kind, period_at(kind, now)[0]])
        for kind in PERIODS
        for rest in ("< ?", "> ?", "= ? AND figures.used <= 0")
    ]
    return _Order("used", "accounts_by_usage", tuple(ranges), tuple(without))


class _Search:
    def __init__(self, database: sqlite3.Connection, selection: AccountSelection, order: _Order) -> None:
        self._database = database
        self._terms = list(selection.terms())
        self._order = order
        self.descending = selection.descending
        self._direction, self._behind = ("DESC", "<") if selection.descending else ("ASC", ">")

    def matching_few(self) -> list[str] | None:
        """The accounts that match the filters; None when they are many, or there is no filter."""
        if not self._terms:
            return None
        found = self._rows(f"SELECT id FROM {_INDEX}", self._terms, "username", FEW + 1)  # noqa: S608 - as below
        return [each for (each,) in found] if len(found) <= FEW else None

    def sorted_few(self, few: Sequence[str], after: Position | None, limit: int) -> list[Position]:
        """A page of these accounts."""
        known, values = self._figure()
        places: list[Position] = []
        for part, marks in _parts(few):
            sql = f"SELECT ifnull(({known}), 0), id FROM main.accounts WHERE id IN ({marks})"  # noqa: S608 - as below
            places += self._database.execute(sql, [*values, *part])
        return self._page(places, after, limit)

    def used(self, after: Position | None, limit: int) -> list[Position]:
        """Those with a figure, behind a position: each range is in order, so the first of all are among their first."""
        found = [self._range(each, after, limit) for each in self._order.ranges]
        return list(heapq.merge(*found, reverse=self.descending))[:limit]

    def unused(self, after: Position | None, limit: int, never_used: Callable[[], list[str] | None]) -> list[Position]:
        """Those without a figure, by their ids: in a walk along all accounts, unless they are few among many."""
        known, values = self._figure()
        terms = [*self._terms, (f"NOT EXISTS ({known})", values)]
        few = self._without_figure(never_used)
        if few is not None:
            places: list[Position] = []
            for part, marks in _parts(few):
                places += self._unused([*terms, (f"id IN ({marks})", [*part])], len(part))
            return self._page(places, after, limit)
        if after is not None:
            terms.append((f"main.accounts.id {self._behind} ?", [after[1]]))
        return self._unused(terms, limit)

    def _unused(self, terms: list[_Term], limit: int) -> list[Position]:
        order = f"main.accounts.id {self._direction}"
        return self._rows("SELECT 0, main.accounts.id FROM main.accounts", terms, order, limit)

    def _without_figure(self, never_used: Callable[[], list[str] | None]) -> list[str] | None:
        """The ids of accounts without a figure, others perhaps among them; None when they are many."""
        found: list[str] = []
        for range_ in self._order.without:
            figures = f"collector.accounts AS figures INDEXED BY {self._order.index}"
            found += (each for (each,) in self._rows(f"SELECT id FROM {figures}", [range_], "1", FEW + 1))  # noqa: S608 - as above
            if len(found) > FEW:
                return None
        never = never_used()
        return None if never is None else [*found, *never]

    def _page(self, places: list[Position], after: Position | None, limit: int) -> list[Position]:
        """The first of these places behind another one."""
        if after is not None:
            behind = tuple(after)
            places = [each for each in places if (tuple(each) < behind if self.descending else tuple(each) > behind)]
        return sorted(places, reverse=self.descending)[:limit]

    def _figure(self) -> _Term:
        """A query of the figure of an account, without a row if it is 0."""
        ranges = " OR ".join(f"({term})" for term, _ in self._order.ranges)
        return (
            f"SELECT figures.{self._order.column} FROM collector.accounts AS figures"  # noqa: S608 - names are ours, values are bound
            f" WHERE figures.id = main.accounts.id AND figures.{self._order.column} > 0 AND ({ranges})",
            [value for _, bound in self._order.ranges for value in bound],
        )

    def _range(self, range_: _Term, after: Position | None, limit: int) -> list[Position]:
        column, index = self._order.column, self._order.index
        terms = [range_, (f"figures.{column} > 0", []), *self._terms]
        if after is not None:
            terms.append((f"(figures.{column}, figures.id) {self._behind} (?, ?)", [*after]))
        figures = f"collector.accounts AS figures INDEXED BY {index}"
        order = f"figures.{column} {self._direction}, figures.id {self._direction}"
        select = f"SELECT figures.{column}, figures.id FROM {figures} CROSS JOIN {_JOINED}"  # noqa: S608 - as above
        return self._rows(select, terms, order, limit)

    def _rows(self, select: str, terms: list[_Term], order: str, limit: int) -> list[Any]:
        bound = [value for _, values in terms for value in values]
        sql = f"{select} WHERE {self._where(terms)} ORDER BY {order} LIMIT ?"
        return self._database.execute(sql, [*bound, limit]).fetchall()

    @staticmethod
    def _where(terms: list[_Term]) -> str:
        return " AND ".join(["1", *(term for term, _ in terms)])


def _parts(identifiers: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
    """As many as one statement takes, with their marks."""
    for begin in range(0, len(identifiers), READ):
        part = identifiers[begin : begin + READ]
        yield part, ", ".join("?" * len(part))


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
