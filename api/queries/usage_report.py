"""What accounts have used when: rows by hour, day, month or for all of the time, read from the collector's file while
they are sent.

In a fleet they are read from its database, which has what all nodes have reported.

The API reads the file of another process here, since months of a hundred thousand accounts don't fit into messages. It
only reads, in one snapshot. Nothing here holds more than the names of all accounts, and the groups of one interval or,
for the largest ones, of all.
"""

from __future__ import annotations

import csv
import heapq
import io
import itertools
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from actors.sqlite import open_for_reading
from api.fleet import FleetUsage, UsageScope
from config.text.formatting import with_apostrophe

GROUPS = ("account", "proxy", "plan", "quota", "tag", "node")
INTERVALS = ("hour", "day", "month", "total")
FIGURES = ("bytes_in", "bytes_out", "requests", "connection_seconds", "refusals")
HOUR, DAY = 3600, 86400
PIECE = 1000
"""Rows that are sent together."""
_STORED = ("bytes_in", "bytes_out", "requests", "milliseconds", "refusals")
_SUMS = ", ".join(f"sum({name})" for name in _STORED)


class Membership(NamedTuple):
    """The plan and the tags of an account, and the bytes and the period of the quota that holds for it, if any."""

    plan: str | None
    tags: tuple[str, ...]
    quota: tuple[int | None, str | None] = (None, None)


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Unix seconds, extended to whole intervals; `proxies` limits it to these and `account` to this id, None: all."""

    start: float
    end: float
    interval: str
    groups: tuple[str, ...]
    proxies: Collection[str] | None = None
    account: str | None = None


Key = tuple[str | int | None, ...]
"""The values of `columns_of` the groups."""
Row = tuple[str, str, Key | int, int, int, int, int, int]
"""From, to, what it is grouped by, and the figures, of which time is in milliseconds. A number in place of a key: it is
of so many groups that `largest` leaves out."""


class UsageReport:
    """One report. `memberships` returns the plan and tags of all accounts by id, and is called only if needed.

    `name_of` is that of a proxy, by its id.
    """

    def __init__(
        self,
        file: Path,
        selection: UsageQuery,
        memberships: Callable[[], Mapping[str, Membership]],
        name_of: Callable[[str], str] = str,
    ) -> None:
        self._file = file
        self._selection = selection
        self._memberships = memberships
        self._name_of = name_of

    def total(self) -> dict[str, int | float]:
        """The figures of everything that the report has, each byte once."""
        figures = [0] * len(_STORED)
        for database in self._open():
            for start, end in self._ranges(database):
                table, column, unit = self._table
                sql = f"SELECT {_SUMS} FROM {table} WHERE {column} >= ? AND {column} < ?{self._where(database)}"  # noqa: S608 - names of ours
                row = database.execute(sql, (start // unit, end // unit)).fetchone()
                figures = [before + (more or 0) for before, more in zip(figures, row, strict=True)]
        return dict(zip(FIGURES, _with_seconds(figures), strict=True))

    def pieces(self) -> Iterator[list[Row]]:
        """All rows in the order of time, many at once. Raises `sqlite3.Error`, in a fleet `StoreError`."""
        for database in self._open():
            keys = self._keys(_Names(database))
            for start, end in self._ranges(database):
                yield from self._pieces(self._grouped(database, start, end), start, end, keys)

    def _keys(self, names: _Names) -> _Keys:
        needed = {"plan", "quota", "tag"} & set(self._selection.groups)
        return _Keys(self._selection.groups, names, self._memberships() if needed else {}, self._name_of)

    def _pieces(self, found: Rows, start: int, end: int, keys: _Keys) -> Iterator[list[Row]]:
        spans = _Spans(0 if self._is_whole else self._table[2], start, end)
        return (_by_account if "account" in self._selection.groups else _merged)(found, spans, keys)

    def _grouped(self, database: sqlite3.Connection, start: int, end: int) -> sqlite3.Cursor:
        """Number of the interval, account, proxy and figures; 0 for what it is not grouped by."""
        table, column, unit = self._table
        groups = set(self._selection.groups)
        columns = [
            "0" if self._is_whole else column,
            "account" if groups & _OF_ACCOUNTS else "0",
            "proxy" if "proxy" in groups else "0",
        ]
        group = ", ".join(each for each in columns if each != "0") or "1"
        sql = (
            f"SELECT {', '.join(columns)}, {_SUMS} FROM {table} WHERE {column} >= ? AND {column} < ?"  # noqa: S608 - names of ours
            f"{self._where(database)} GROUP BY {group} ORDER BY {group}"
        )
        return database.execute(sql, (start // unit, end // unit))

    # --- the file and the time ---

    @property
    def _is_whole(self) -> bool:
        """Whether each range is one interval."""
        return self._selection.interval in ("month", "total")

    @property
    def _table(self) -> tuple[str, str, int]:
        return ("hours", "hour", HOUR) if self._selection.interval == "hour" else ("days", "day", DAY)

    def _ranges(self, database: sqlite3.Connection | None) -> Iterator[tuple[int, int]]:
        """Start and end; each month by itself, of those between the first and the last day that is stored."""
        start, end, interval = self._selection.start, self._selection.end, self._selection.interval
        if interval != "month":
            unit = self._table[2]
            yield int(start // unit) * unit, -int(-end // unit) * unit
            return
        first, last = self._days(database)
        if first is None:
            return
        start, end = max(start, first * DAY), min(end, (last + 1) * DAY)  # not the months of centuries
        moment = datetime.fromtimestamp(start, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        while moment.timestamp() < end:
            following = (moment + timedelta(days=32)).replace(day=1)
            yield int(moment.timestamp()), int(following.timestamp())
            moment = following

    def _days(self, database: sqlite3.Connection | None) -> tuple[int | None, int]:
        assert database is not None
        found: tuple[int | None, int] = database.execute("SELECT min(day), max(day) FROM days").fetchone()
        return found

    def _where(self, database: sqlite3.Connection) -> str:
        return self._of_account(database) + self._of_proxies(database)

    def _of_account(self, database: sqlite3.Connection) -> str:
        if self._selection.account is None:
            return ""
        row = database.execute("SELECT number FROM accounts WHERE id = ?", [self._selection.account]).fetchone()
        return f" AND account = {row[0]}" if row else " AND 0"

    def _of_proxies(self, database: sqlite3.Connection) -> str:
        if self._selection.proxies is None:
            return ""
        numbers = dict(database.execute("SELECT id, number FROM proxies").fetchall())
        allowed = ", ".join(str(numbers[each]) for each in self._selection.proxies if each in numbers)
        return f" AND proxy IN ({allowed})"

    def _open(self) -> Iterator[sqlite3.Connection]:
        """The file in one snapshot; nothing when there is none yet."""
        if not self._file.exists():
            return
        with closing(open_for_reading(self._file)) as database:
            database.execute("BEGIN")
            yield database


class FleetUsageReport(UsageReport):
    """One of what all nodes have reported."""

    def __init__(
        self,
        fleet: FleetUsage,
        selection: UsageQuery,
        memberships: Callable[[], Mapping[str, Membership]],
        name_of: Callable[[str], str] = str,
    ) -> None:
        super().__init__(Path(), selection, memberships, name_of)
        self._fleet = fleet

    def total(self) -> dict[str, int | float]:
        """See `UsageReport`; raises `StoreError`."""
        figures = [0] * len(_STORED)
        for start, end in self._ranges(None):
            figures = [*map(int.__add__, figures, self._fleet.total(self._scope(start, end)))]
        return dict(zip(FIGURES, _with_seconds(figures), strict=True))

    def pieces(self) -> Iterator[list[Row]]:
        """See `UsageReport`."""
        groups = {*self._selection.groups}
        columns = groups & {"proxy", "node"} | ({"account"} if groups & _OF_ACCOUNTS else set())
        columns |= set() if self._is_whole else {"interval"}
        keys = self._keys(_FleetNames(self._fleet.names() if "node" in groups else {}))
        for start, end in self._ranges(None):
            yield from self._pieces(_FleetRows(self._fleet.rows(self._scope(start, end), columns)), start, end, keys)

    def _scope(self, start: int, end: int) -> UsageScope:
        selection = self._selection
        return UsageScope(start, end, selection.interval == "hour", selection.proxies, selection.account)

    def _days(self, _database: sqlite3.Connection | None) -> tuple[int | None, int]:
        return self._fleet.days() or (None, 0)


def days_of(file: Path, account_id: str, end: float, days: int) -> list[dict[str, Any]]:
    """What one account has used on the last so many days before `end` (Unix seconds), oldest first; in `FIGURES`.

    Each day is looked up by itself, since a range would read those of all accounts. Raises `sqlite3.Error`.
    """
    if not file.exists():
        return []
    last = int(end // DAY)
    marks = ", ".join(str(day) for day in range(last - days + 1, last + 1))
    sql = (
        f"SELECT day, {_SUMS} FROM days WHERE day IN ({marks})"  # noqa: S608 - numbers
        " AND account = (SELECT number FROM accounts WHERE id = ?) GROUP BY day ORDER BY day"
    )
    with closing(open_for_reading(file)) as database:
        rows = database.execute(sql, [account_id]).fetchall()
    return [_of_day(day, sums) for day, *sums in rows]


def days_on_all_nodes(fleet: FleetUsage, account_id: str, end: float, days: int) -> list[dict[str, Any]]:
    """As `days_of`, in a fleet. Raises `StoreError`."""
    last = int(end // DAY)
    scope = UsageScope((last - days + 1) * DAY, (last + 1) * DAY, False, account=account_id)
    return [_of_day(day, sums) for day, _, _, *sums in fleet.rows(scope, ("interval",))]


def _of_day(day: int, sums: Iterable[int]) -> dict[str, Any]:
    figures = zip(FIGURES, _with_seconds(sums), strict=True)
    return {"from": _text(day * DAY), "to": _text((day + 1) * DAY), **dict(figures)}


class _Names:
    """Ids and names by number; those that were asked for are kept."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._accounts: dict[Any, tuple[str, str]] = {}
        self._proxies = {number: str(each) for number, each in database.execute("SELECT number, id FROM proxies")}

    def proxy(self, number: Any) -> str | None:
        """Its id."""
        return self._proxies.get(number)

    def node(self, _number: Any) -> str | None:
        """Its name, which it has in a fleet."""
        return None

    def account(self, number: Any) -> tuple[str, str]:
        """Id and last user name."""
        found = self._accounts.get(number)
        if found is None:
            row = self._database.execute("SELECT id, username FROM accounts WHERE number = ?", (number,)).fetchone()
            found = self._accounts[number] = row or (str(number), "")
        return found


class _FleetNames(_Names):
    """Rows of a fleet have ids in place of numbers, and user names: `api.fleet.UsageOfInterval`."""

    def __init__(self, nodes: Mapping[str, str]) -> None:
        self._nodes = nodes

    def account(self, number: Any) -> tuple[str, str]:
        """See `_Names`."""
        found: tuple[str, str] = number
        return found

    def proxy(self, number: Any) -> str | None:
        """See `_Names`."""
        return number[0] or None

    def node(self, number: Any) -> str | None:
        """See `_Names`. A node that was removed has its id alone, and an hour that is added up has none."""
        return self._nodes.get(number[1], number[1]) or None


class _FleetRows:
    """Rows as a cursor has them."""

    def __init__(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._rows = iter(rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._rows

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        """The next ones."""
        return [*itertools.islice(self._rows, size)]


Rows = sqlite3.Cursor | _FleetRows


def columns_of(groups: Collection[str]) -> tuple[str, ...]:
    """The columns that a row has for what it is grouped by."""
    return tuple(column for group in GROUPS if group in groups for column in _COLUMNS.get(group, (group,)))


_COLUMNS = {
    "account": ("account", "username"),
    "proxy": ("proxy", "proxy_name"),
    "quota": ("quota", "quota_period"),
}
"""Of groups that have more than one."""
_OF_ACCOUNTS = {"account", "plan", "quota", "tag"}
"""Groups that depend on the account."""


class _Keys:
    """The groups of an account and a proxy, by their numbers: one for each of the account's tags."""

    def __init__(
        self,
        groups: Collection[str],
        names: _Names,
        memberships: Mapping[str, Membership],
        name_of: Callable[[str], str],
    ) -> None:
        self._groups = groups
        self._names = names
        self._memberships = memberships
        self._name_of = name_of
        self._known: dict[tuple[Any, Any], tuple[Key, ...]] = {}

    def __call__(self, account: Any, proxy: Any) -> tuple[Key, ...]:
        found = self._known.get((account, proxy))
        if found is None:
            found = self._known[account, proxy] = tuple(self._make(account, proxy))
        return found

    def _make(self, account: Any, proxy: Any) -> Iterator[Key]:
        identifier, username = self._names.account(account) if account else ("", "")
        proxy_id = self._names.proxy(proxy)
        plan, tags, (quota, period) = self._memberships.get(identifier, _NO_MEMBERSHIP)
        for tag in (tags or (None,)) if "tag" in self._groups else (None,):
            values: dict[str, str | int | None] = {
                "account": identifier, "username": username, "plan": plan, "quota": quota, "quota_period": period,
                "proxy": proxy_id, "proxy_name": proxy_id and self._name_of(proxy_id), "tag": tag,
                "node": self._names.node(proxy),
            }  # fmt: skip
            yield tuple(values[column] for column in columns_of(self._groups))


class _Spans:
    """From and to of an interval, by its number; `unit` 0: there is one, from `start` to `end`."""

    def __init__(self, unit: int, start: int, end: int) -> None:
        self._unit = unit
        self._one = _text(start), _text(end)
        self._known: dict[int, tuple[str, str]] = {}

    def __call__(self, number: int) -> tuple[str, str]:
        if not self._unit:
            return self._one
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = _text(number * self._unit), _text((number + 1) * self._unit)
        return found


def _by_account(found: Rows, spans: _Spans, keys: _Keys) -> Iterator[list[Row]]:
    """Written out: a report may have millions of rows, and this is half of its cost."""
    start, end, last = "", "", None
    while rows := found.fetchmany(PIECE):
        piece: list[Row] = []
        for number, account, proxy, bytes_in, bytes_out, requests, milliseconds, refusals in rows:
            if number != last:
                start, end = spans(number)
                last = number
            for key in keys(account, proxy):
                piece.append((start, end, key, bytes_in, bytes_out, requests, milliseconds, refusals))  # noqa: PERF401 - see above
        yield piece


def _merged(found: Iterable[tuple[Any, ...]], spans: _Spans, keys: _Keys) -> Iterator[list[Row]]:
    """Those of the same groups in one interval added up."""
    for number, rows in itertools.groupby(found, key=lambda row: row[0]):
        merged: dict[Key, list[int]] = {}
        for _, account, proxy, *figures in rows:
            for key in keys(account, proxy):
                before = merged.setdefault(key, [0] * len(figures))
                for place, figure in enumerate(figures):
                    before[place] += figure
        ordered = sorted(merged, key=lambda key: tuple((each is not None, each or "") for each in key))
        yield [(*spans(number), key, *merged[key]) for key in ordered]  # type: ignore[misc]


def largest(whole: Iterable[list[Row]], pieces: Iterable[list[Row]], count: int) -> Iterator[list[Row]]:
    """The rows of `pieces` for the `count` groups that have used most bytes in `whole`, most first in each interval.

    The last one of an interval is of all others, if there are any.
    """
    used = Counter[Key | int]()
    for _, _, key, bytes_in, bytes_out, *_ in itertools.chain.from_iterable(whole):
        used[key] += bytes_in + bytes_out
    places = {key: place for place, key in enumerate(heapq.nlargest(count, used, key=used.__getitem__))}
    for (start, end), rows in itertools.groupby(itertools.chain.from_iterable(pieces), key=itemgetter(0, 1)):
        chosen, others, figures = list[Row](), 0, [0] * len(_STORED)
        for row in rows:
            if row[2] in places:
                chosen.append(row)
            else:
                others += 1
                figures = [*map(int.__add__, figures, row[3:])]
        chosen.sort(key=lambda row: places[row[2]])
        yield [*chosen, (start, end, others, *figures)] if others else chosen


_NO_MEMBERSHIP = Membership(None, ())


def _with_seconds(figures: Iterable[int]) -> tuple[int | float, ...]:
    """The figures of a response: milliseconds as seconds."""
    bytes_in, bytes_out, requests, milliseconds, refusals = figures
    return bytes_in, bytes_out, requests, round(milliseconds / 1000, 3), refusals


def _text(moment: int) -> str:
    """ISO 8601, UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- what is sent ---


def json_pieces(
    pieces: Iterable[list[Row]], groups: Collection[str], interval: str, total: Mapping[str, Any]
) -> Iterator[bytes]:
    """The envelope of a response in pieces."""
    head = json.dumps({"interval": interval, "total": total})
    columns = columns_of(groups)
    texts: dict[Key | int, str] = {}

    def text(key: Key | int) -> str:
        known = {"others": key} if isinstance(key, int) else dict(zip(columns, key, strict=True))
        made = texts[key] = json.dumps(known, separators=(",", ":"))[1:-1]
        return made

    yield f'{{"success": true, "data": {head[:-1]}, "usage": ['.encode()
    comma = ""
    for piece in pieces:
        lines = [
            f'{{"from":"{start}","to":"{end}",{texts.get(key) or text(key)},"bytes_in":{bytes_in},'
            f'"bytes_out":{bytes_out},"requests":{requests},"connection_seconds":{time / 1000},"refusals":{refusals}}}'
            for start, end, key, bytes_in, bytes_out, requests, time, refusals in piece
        ]
        yield (comma + ",\n".join(lines)).encode()
        comma = ",\n"
    yield b"]}}"


def csv_pieces(
    pieces: Iterable[list[Row]],
    groups: Collection[str],
    metadata: Sequence[str] = (),
    metadata_of: Callable[[str], Mapping[str, str]] = lambda _account_id: {},
) -> Iterator[bytes]:
    """Lines of CSV (RFC 4180) in pieces, the names of the columns first.

    Rows of accounts have columns for these names of `metadata_of` them, which a deleted one has no more.
    """
    texts: dict[Key | int, str] = {}

    def text(key: Key | int) -> str:
        assert not isinstance(key, int)
        known = metadata_of(str(key[0] or "")) if metadata else {}
        made = texts[key] = _csv_line(map(cell, (*key, *(known.get(name) for name in metadata))))
        return made

    columns = (*columns_of(groups), *(cell(f"metadata.{name}") for name in metadata))
    yield f"{_csv_line(('from', 'to', *columns, *FIGURES))}\r\n".encode()
    for piece in pieces:
        lines = [
            f"{start},{end},{texts.get(key) or text(key)},{bytes_in},{bytes_out},{requests},{time / 1000},"
            f"{refusals}\r\n"
            for start, end, key, bytes_in, bytes_out, requests, time, refusals in piece
        ]
        yield "".join(lines).encode()


def _csv_line(cells: Iterable[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow(cells)
    return buffer.getvalue()


def cell(value: str | int | None) -> str:
    """A text as a cell that no spreadsheet takes for a formula; or a number."""
    return with_apostrophe(str(value)) if value else ""


def file_name(selection: UsageQuery) -> str:
    """`usage-2026-11.csv` for a month (UTC), else with the first and the last day."""
    start = datetime.fromtimestamp(selection.start // DAY * DAY, UTC)
    last = datetime.fromtimestamp(max(selection.start, selection.end - 1), UTC)
    days = [f"{each:%Y-%m-%d}" for each in (start, last)]
    is_month = start.day == 1 and last.month == start.month and (last + timedelta(days=1)).day == 1
    period = f"{start:%Y-%m}" if is_month and last - start < timedelta(days=31) else "-to-".join(dict.fromkeys(days))
    return f"usage-{period}.csv"


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
