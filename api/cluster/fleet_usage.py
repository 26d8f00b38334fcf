"""What accounts have used on all nodes, as `GET /usage` reads it from the fleet's database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from actors.cluster.database import CHANGE, Database
from actors.sqlite import open_for_reading
from api.cluster.shared_ledger import as_of_store
from api.fleet import UsageOfInterval, UsageScope

HOUR, DAY = 3600, 86400

_FIGURES = ("bytes_in", "bytes_out", "requests", "milliseconds", "refusals")
# each figure of a stolen edge fits, and the sum of many may not
_SUMS = ", ".join(f"least(coalesce(sum({name}), 0), {2**63 - 1})::bigint" for name in _FIGURES)
_COLUMNS = f"account, proxy, node, {', '.join(_FIGURES)}"
# hours that are added up have no node, and are in the days; the others are not there yet
_BY_HOUR = f"SELECT hour AS number, {_COLUMNS} FROM proxyfleet.usage_hours WHERE"  # noqa: S608 - names of ours
_HOURS_BY_DAY = f"SELECT hour / 24 AS number, {_COLUMNS} FROM proxyfleet.usage_hours WHERE node <> '' AND"  # noqa: S608
_BY_DAY = f"SELECT day AS number, {_COLUMNS} FROM proxyfleet.usage_days WHERE"  # noqa: S608 - names of ours
_DAYS = """
SELECT least(min(d.first), min(h.first)), greatest(max(d.last), max(h.last)) FROM
    (SELECT min(day) AS first, max(day) AS last FROM proxyfleet.usage_days) d,
    (SELECT min(hour) / 24 AS first, max(hour) / 24 AS last FROM proxyfleet.usage_hours WHERE hour > 0) h
"""
_NAMES = "SELECT id, body ->> 'name' FROM proxyfleet.documents WHERE collection = 'nodes' AND body IS NOT NULL"


class UsageOfFleet:
    """The `api.fleet.FleetUsage` of a node. Each day is a query of its own: none takes long, however many are read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def total(self, scope: UsageScope) -> tuple[int, int, int, int, int]:
        """See `FleetUsage`."""
        text, parameters = _selected(scope)
        [row] = self._rows(f"SELECT {_SUMS} FROM {text}", parameters)  # noqa: S608 - names of ours
        return row  # type: ignore[no-any-return]

    def rows(self, scope: UsageScope, groups: Collection[str]) -> Iterator[UsageOfInterval]:
        """See `FleetUsage`."""
        columns = [each for each in ("number", "account", "proxy", "node") if each in groups]
        if "interval" not in groups:
            yield from self._grouped(scope, columns)
            return
        if scope.account is not None:
            yield from self._grouped(scope, ["number", *columns])
            return
        for start in range(scope.start, scope.end, DAY):
            yield from self._grouped(scope._replace(start=start, end=min(start + DAY, scope.end)), ["number", *columns])

    def _grouped(self, scope: UsageScope, columns: Sequence[str]) -> Iterator[UsageOfInterval]:
        text, parameters = _selected(scope)
        chosen = ", ".join(each if each in columns else "0" for each in ("number", "account", "proxy", "node"))
        by = f" GROUP BY {', '.join(columns)} ORDER BY {', '.join(columns)}" if columns else ""
        statement = f"SELECT {chosen}, {_SUMS} FROM {text}{by}"  # noqa: S608 - names of ours
        if "account" in columns:
            statement = (
                f"SELECT u.*, coalesce(t.username, '') AS username FROM ({statement}) u"  # noqa: S608 - names of ours
                f" LEFT JOIN proxyfleet.usage_totals t ON t.account = u.account ORDER BY {', '.join(columns)}"
            )
        for number, account, proxy, node, *figures in self._rows(statement, parameters):
            who = (account, figures.pop()) if "account" in columns else 0
            yield (number, who, (proxy, node), *figures)

    def days(self) -> tuple[int, int] | None:
        """See `FleetUsage`."""
        [(first, last)] = self._rows(_DAYS, ())
        return None if first is None else (first, last)

    def names(self) -> dict[str, str]:
        """See `FleetUsage`."""
        return dict(self._rows(_NAMES, ()))

    def _rows(self, statement: str, parameters: Sequence[Any]) -> list[Any]:
        with as_of_store():
            return self._database.transaction(statement, parameters, CHANGE)


def _selected(scope: UsageScope) -> tuple[str, list[Any]]:
    """What is of the scope, as a table, and its parameters."""
    unit = HOUR if scope.by_hour else DAY
    first, last = scope.start // unit, scope.end // unit
    tables = [(_BY_HOUR, "hour", 1)] if scope.by_hour else [(_HOURS_BY_DAY, "hour", 24), (_BY_DAY, "day", 1)]
    texts, parameters = list[str](), list[Any]()
    for text, column, times in tables:
        begin, end = first * times, last * times
        if scope.account is None:
            texts.append(f"{text} {column} >= %s AND {column} < %s")
            parameters += [begin, end]
        else:  # each by itself: a range would read those of all accounts
            texts.append(f"{text} {column} = ANY (%s) AND account = %s")
            parameters += [[*range(begin, end)], scope.account]
        if scope.proxies is not None:
            texts[-1] += " AND proxy = ANY (%s)"
            parameters.append([*scope.proxies])
    return f"({' UNION ALL '.join(texts)}) r", parameters


class Unreported(NamedTuple):
    """Bytes that the collector has counted and the database lacks, and since when, in Unix seconds; and all of them."""

    bytes: int
    since: float
    counted: int = 0


def unreported(file: Path) -> Unreported:
    """By the collector's file (`DataDir.usage`): nothing as long as it has counted nothing as a node's.

    Raises `sqlite3.Error`.
    """
    if not file.exists():
        return Unreported(0, 0.0)
    with closing(open_for_reading(file)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'reporting'").fetchone():
            return Unreported(0, 0.0)
        row = database.execute("SELECT counted - reported, since, counted FROM reporting").fetchone()
        return Unreported(*(row or (0, 0.0)))
