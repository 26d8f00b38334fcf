"""What accounts have used over all proxies, kept on disk to the byte.

Each process counts in lines of its own (`actors.state.usage`). The ledger keeps what it has booked of every line, and
adds the difference to the account's sums and to the present hour, all in one transaction. So a line may be read again,
or come late since this process was away, and still every byte counts once.

Bytes belong to the period, and to the hour, in which they are booked. A closed hour never changes: when the clock is
set back a little, its last hour goes on.

The file of what accounts have used: its tables. `accounts` has what each has used in the present day, week, month and
in total; `used`, in its `period` since `since`, is there to sort by. `warned` and `reached` are the starts of the
periods for which there was an event; events wait in `notices` until they are published. `gone` is when it was removed,
0 for one that is there. `booked` has what is booked of each line, by instance and serial, until the line is free.
`hours` and `days` are what was used when: by number of the hour or day since 1970, account and proxy.

The events of accounts that come near their quotas or reach them: once each in a period, also through restarts. An event
is stored in the same transaction as the usage that it is about, and deleted when it was published. One that was
published right before the collector died is published again with its id, by which receivers know it.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from actors.bus.events import new_event
from actors.bus.messages.accounts import CREDENTIAL, AccountActivity, AccountUsage
from actors.bus.messages.events import Event
from actors.sqlite import open_database, transaction
from actors.state.booked_usage import CountedLine
from config.model.choices import PERIODS, period_at
from config.text.formatting import timestamp_text

if TYPE_CHECKING:
    from actors.metrics.usage.changes import UsageChanges

FIGURES = ("bytes_in", "bytes_out", "requests", "milliseconds", "refusals")
"""What is counted of an account, as columns."""
SUMS = tuple(f"{kind}_{column}" for kind in PERIODS for column in ("since", "in", "out"))

FIGURES_SQL = ", ".join(f"{name} INTEGER NOT NULL" for name in FIGURES)
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS accounts (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    username TEXT NOT NULL DEFAULT '', gone INTEGER NOT NULL DEFAULT 0,
    period TEXT NOT NULL DEFAULT 'total', since REAL NOT NULL DEFAULT 0, used INTEGER NOT NULL DEFAULT 0,
    last_seen REAL NOT NULL DEFAULT 0, client_ip TEXT NOT NULL DEFAULT '', warned REAL, reached REAL,
    {", ".join(f"{name} {'REAL' if name.endswith('since') else 'INTEGER'} NOT NULL DEFAULT 0" for name in SUMS)}
);
CREATE INDEX IF NOT EXISTS accounts_by_usage ON accounts (period, since, used, id);
CREATE INDEX IF NOT EXISTS accounts_by_last_seen ON accounts (last_seen, id);
CREATE TABLE IF NOT EXISTS proxies (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS booked (
    instance INTEGER, serial INTEGER, account INTEGER NOT NULL, {FIGURES_SQL}, PRIMARY KEY (instance, serial)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS booked_by_account ON booked (account);
CREATE TABLE IF NOT EXISTS notices (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hours (
    hour INTEGER, account INTEGER, proxy INTEGER, {FIGURES_SQL}, PRIMARY KEY (hour, account, proxy)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS days (
    day INTEGER, account INTEGER, proxy INTEGER, {FIGURES_SQL}, PRIMARY KEY (day, account, proxy)
) WITHOUT ROWID;
"""


WARNING, REACHED = "account.quota_warning", "account.quota_reached"


class QuotaNotices:
    """Writes within a transaction that is under way. `percent` of a quota is the warning; 0 for none."""

    def __init__(self, database: sqlite3.Connection, percent: float = 80.0) -> None:
        self.percent = percent
        self._database = database

    def note(self, number: int, account_id: str, username: str, quota: int, usage: AccountUsage) -> None:
        """Make the events that are due, now that an account has used so much of its quota."""
        used = usage.bytes_in + usage.bytes_out
        if not quota or used < min(quota, quota * (self.percent or 100) / 100):
            return
        warned, reached = self._database.execute(
            "SELECT warned, reached FROM accounts WHERE number = ?", (number,)
        ).fetchone()
        until = period_at(usage.period, usage.since)[1]
        data = {
            "account_id": account_id,
            "username": username,
            "used": used,
            "quota": quota,
            "period": usage.period,
            "period_end": None if until is None else timestamp_text(until),
        }
        if self.percent and warned != usage.since:
            self._add(WARNING, {**data, "percent": self.percent})
            self._database.execute("UPDATE accounts SET warned = ? WHERE number = ?", (usage.since, number))
        if used >= quota and reached != usage.since:
            self._add(REACHED, data)
            self._database.execute("UPDATE accounts SET reached = ? WHERE number = ?", (usage.since, number))

    def pending(self) -> list[Event]:
        """Those that are not published yet, oldest first."""
        rows = self._database.execute("SELECT id, kind, at, data FROM notices ORDER BY at, kind DESC").fetchall()
        return [Event(identifier, kind, at, json.loads(data)) for identifier, kind, at, data in rows]

    def published(self, events: Iterable[Event]) -> None:
        """These are published."""
        self._database.executemany("DELETE FROM notices WHERE id = ?", [(each.id,) for each in events])

    def _add(self, kind: str, data: dict[str, object]) -> None:
        event = new_event(kind, data)
        values = (event.id, kind, event.timestamp, json.dumps(data))
        self._database.execute("INSERT INTO notices VALUES (?, ?, ?, ?)", values)


HOUR, DAY = 3600, 86400
RETENTION_DAYS = 400
"""Days that hours and days of usage are kept."""
BACKWARD_MAX = 24
"""Hours that the clock may be set back without another hour than the last being written to."""

GONE_FOR = 10.0
"""Seconds after which processes use an account no more that was removed; one that is used then has come back."""

PROXIES_MAX = 50
"""Proxies that the activity of an account names."""

_COLUMNS = ("number", "id", "username", "gone", "period", "since", "used", "last_seen", "client_ip", *SUMS)
_READ = f"SELECT {', '.join(_COLUMNS)} FROM accounts WHERE id = ?"  # noqa: S608 - names of ours
_WRITTEN = _COLUMNS[2:]
_WRITE = f"UPDATE accounts SET {', '.join(f'{name} = ?' for name in _WRITTEN)} WHERE number = ?"  # noqa: S608 - names of ours
_LAST = f"SELECT {', '.join(FIGURES)} FROM booked WHERE instance = ? AND serial = ?"  # noqa: S608 - names of ours
_BOOKED_OF = (
    f"SELECT period, instance, serial, {', '.join(FIGURES)} FROM accounts"  # noqa: S608 - names of ours
    " LEFT JOIN booked ON account = number WHERE id = ?"
)
_KEEP = f"INSERT OR REPLACE INTO booked VALUES ({', '.join('?' * (3 + len(FIGURES)))})"  # noqa: S608 - names of ours
_REACHED = "SELECT id, period, since FROM accounts WHERE reached = since AND NOT gone AND substr(id, 1, 4) <> ?"
_NOTHING = (0,) * len(FIGURES)
_NO_LINES: Mapping[str, Sequence[CountedLine]] = MappingProxyType({})
_FIRST_SUM = len(_COLUMNS) - len(SUMS)

LineName = tuple[int, int]
"""The instance and the serial of a line."""


def _adding(table: str, column: str) -> str:
    added = ", ".join(f"{name} = {name} + excluded.{name}" for name in FIGURES)
    marks = ", ".join("?" * (3 + len(FIGURES)))
    return f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT ({column}, account, proxy) DO UPDATE SET {added}"  # noqa: S608 - names of ours


_ADD_TO_HOUR, _ADD_TO_DAY = _adding("hours", "hour"), _adding("days", "day")


class Total(NamedTuple):
    """What an account has used in its period, and bytes in and out that are in it of each line that isn't free."""

    usage: AccountUsage
    booked: dict[LineName, tuple[int, int]]


@dataclass(slots=True)
class AccountRow:
    """A row of `accounts`; the sums are `since`, `in`, `out` of each period."""

    number: int
    id: str
    username: str
    gone: int
    period: str
    since: float
    used: int
    last_seen: float
    client_ip: str
    sums: list[float]

    def roll(self, starts: Sequence[float]) -> None:
        """Begin the periods that are due."""
        for place, start in enumerate(starts):
            if self.sums[3 * place] != start:
                self.sums[3 * place : 3 * place + 3] = (start, 0, 0)

    def add(self, bytes_in: int, bytes_out: int) -> None:
        for place in range(0, len(self.sums), 3):
            self.sums[place + 1] += bytes_in
            self.sums[place + 2] += bytes_out

    def usage(self, period: str) -> AccountUsage:
        place = 3 * PERIODS.index(period)
        since, bytes_in, bytes_out = self.sums[place : place + 3]
        return AccountUsage(period, since, int(bytes_in), int(bytes_out))

    def row(self) -> tuple[object, ...]:
        """The columns that are written."""
        usage = self.usage(self.period)
        used = usage.bytes_in + usage.bytes_out
        return (self.username, self.gone, self.period, usage.since, used, self.last_seen, self.client_ip, *self.sums)


class UsageLedger:
    """The usage of all accounts. `wall` is Unix seconds.

    Changes are made within `changes`; all raise `sqlite3.Error`, and then nothing has changed.
    """

    def __init__(
        self,
        folder: Path,
        wall: Callable[[], float] = time.time,
        on_use: Callable[[str, Sequence[int]], None] = lambda _account_id, _figures: None,
    ) -> None:
        """`on_use` gets what is booked, in the order of `FIGURES`; again, where a transaction has failed."""
        self.wall = self._local_wall = wall
        self._on_use = on_use
        self.database = open_database(folder / "usage.sqlite", SCHEMA)
        self.notices = QuotaNotices(self.database)
        self._fleet: UsageChanges | None = None
        self._proxies: dict[str, int] = {}
        self._hour: int = self.database.execute("SELECT ifnull(max(hour), 0) FROM hours").fetchone()[0]
        self._starts_of = -1.0
        self._starts: tuple[float, ...] = ()

    @contextmanager
    def changes(self) -> Iterator[None]:
        """All changes within are stored together."""
        self._proxies_before = dict(self._proxies)
        try:
            with transaction(self.database):
                yield
        except BaseException:  # SystemExit too: the transaction is rolled back
            self._proxies = self._proxies_before
            raise

    def book(self, counted: CountedLine) -> None:
        """Take what one process has counted of an account in one line."""
        account = self._account(counted.account_id)
        if account is None:
            used = any(counted.figures) or counted.connections
            if not (counted.quota or (used and not counted.account_id.startswith(CREDENTIAL))):
                return  # most accounts are never used; a credential has its quota from the beginning
            account = self._new_account(counted.account_id)
        before = account.row()
        self._add_difference(account, counted)
        account.username, account.period = counted.username, counted.period
        if counted.last_seen > account.last_seen:
            account.last_seen, account.client_ip = counted.last_seen, counted.client_ip
        if not counted.final and counted.last_seen > account.gone + GONE_FOR:
            account.gone = 0
        if account.row() != before:
            self._write(account)
        if self._fleet is None and not account.id.startswith(CREDENTIAL):
            usage = account.usage(counted.period)
            self.notices.note(account.number, account.id, account.username, counted.quota, usage)

    def unbooked(self, lines: Mapping[str, Iterable[CountedLine]]) -> list[CountedLine]:
        """Those of the lines of these accounts of which not all figures are booked, or that have another period."""
        found = list[CountedLine]()
        for account_id, of_account in lines.items():
            rows = self.database.execute(_BOOKED_OF, (account_id,)).fetchall()
            period = rows[0][0] if rows else None
            booked = {row[1:3]: row[3:] for row in rows}
            for each in of_account:
                known = booked.get((each.instance, each.serial), _NOTHING)
                if each.figures != known or each.period != period:
                    found.append(each)
        return found

    def forget_lines(self, lines: Iterable[LineName]) -> None:
        """These are free."""
        self.database.executemany("DELETE FROM booked WHERE instance = ? AND serial = ?", lines)

    @property
    def is_empty(self) -> bool:
        """Whether no account was ever used. Raises `sqlite3.Error`."""
        return self.database.execute("SELECT 1 FROM accounts LIMIT 1").fetchone() is None

    def lines(self) -> list[LineName]:
        """All of which something is booked."""
        return self.database.execute("SELECT instance, serial FROM booked").fetchall()

    def total(self, account_id: str) -> Total | None:
        """What an account has used, in the period that it has; None if it was never used."""
        account = self._account(account_id)
        if account is None:
            return None
        rows = self.database.execute(
            "SELECT instance, serial, bytes_in, bytes_out FROM booked WHERE account = ?", (account.number,)
        )
        return Total(account.usage(account.period), {(row[0], row[1]): (row[2], row[3]) for row in rows})

    def usage(
        self, periods: Mapping[str, str], lines: Mapping[str, Sequence[CountedLine]] = _NO_LINES
    ) -> dict[str, AccountActivity]:
        """Of these accounts, by id, in the period that each has; those that were never used are left out.

        `lines` are those of each, which have its open connections.
        """
        found = ((each, period, self._account(each)) for each, period in periods.items())
        return {
            each: _activity(account, period, lines.get(each, ()))
            for each, period, account in found
            if account is not None
        }

    def reached(self, limit: int) -> list[str]:
        """Ids of accounts that have reached their quota in the present period."""
        starts = dict(zip(PERIODS, self._starts_now(), strict=True))
        rows = self.database.execute(_REACHED, (CREDENTIAL,))
        return list(islice((each for each, period, since in rows if starts.get(period) == since), limit))

    def reset(self, account_ids: Iterable[str]) -> None:
        """Nothing is used from now on, in any period."""
        for account_id in account_ids:
            account = self._account(account_id)
            if account is not None:
                for place in range(0, len(account.sums), 3):
                    account.sums[place + 1] = account.sums[place + 2] = 0
                self._write(account)
                self.database.execute(
                    "UPDATE accounts SET warned = NULL, reached = NULL WHERE number = ?", (account.number,)
                )

    def forget(self, account_ids: Sequence[str]) -> None:
        """These accounts were removed; their hours stay under their names."""
        self.reset(account_ids)
        now = int(self.wall())
        self.database.executemany("UPDATE accounts SET gone = ? WHERE id = ?", [(now, each) for each in account_ids])
        self.database.execute("DELETE FROM accounts WHERE gone AND substr(id, 1, 4) = ?", (CREDENTIAL,))

    def prune(self) -> None:
        """Delete what is older than it is kept."""
        day = int(self.wall()) // DAY - RETENTION_DAYS
        self.database.execute("DELETE FROM hours WHERE hour < ?", (day * 24,))
        self.database.execute("DELETE FROM days WHERE day < ?", (day,))
        if self._fleet is not None:
            self._fleet.prune()
        self.database.execute(
            "DELETE FROM accounts WHERE (gone OR substr(id, 1, 4) = ?) AND last_seen < ?", (CREDENTIAL, (day - 1) * DAY)
        )

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def _add_difference(self, account: AccountRow, counted: CountedLine) -> None:
        """Add what was counted in the line since it was booked last."""
        line = counted.instance, counted.serial
        before = self.database.execute(_LAST, line).fetchone() or _NOTHING
        added = tuple(map(int.__sub__, counted.figures, before))
        if not any(added) or min(added) < 0:
            return  # nothing, or another program has written there
        self.database.execute(_KEEP, (*line, account.number, *counted.figures))
        account.add(added[0], added[1])
        self._on_use(account.id, added)
        hour = self._current_hour()
        is_credential = account.id.startswith(CREDENTIAL)
        proxy = 0 if is_credential else self._proxy(counted.proxy_id)
        if self._fleet is not None:
            self._fleet.note(hour, account.number, proxy, added)
        if not is_credential:
            self.database.execute(_ADD_TO_HOUR, (hour, account.number, proxy, *added))
            self.database.execute(_ADD_TO_DAY, (hour // 24, account.number, proxy, *added))

    # --- in a fleet ---

    def follow(self, fleet: UsageChanges | None, wall: Callable[[], float] | None = None) -> None:
        """The sums are of all nodes from now on, and this is the fleet's time; None: of this machine alone."""
        self._fleet, self.wall = fleet, wall or self._local_wall
        self._starts_of = -1.0

    def starts(self) -> Sequence[float]:
        """The starts of the present periods, as in `PERIODS`."""
        return self._starts_now()

    def sums(self, account_id: str) -> Sequence[float]:
        """Start, bytes in and bytes out of each present period; none for one that was never used."""
        account = self._account(account_id)
        return () if account is None else tuple(account.sums)

    def fleet_account(self, account_id: str) -> AccountRow:
        """An account, which may be used on another node alone."""
        return self._account(account_id) or self._new_account(account_id)

    def set_sums(
        self, account: AccountRow, sums: Sequence[float], last_seen: float, client_ip: str, username: str
    ) -> None:
        """All nodes have used so much."""
        account.sums[:] = sums
        if last_seen > account.last_seen:
            account.last_seen, account.client_ip, account.username = last_seen, client_ip, username
        self._write(account)

    # --- rows ---

    def _account(self, account_id: str) -> AccountRow | None:
        """The account in the periods of this moment."""
        row = self.database.execute(_READ, (account_id,)).fetchone()
        if row is None:
            return None
        columns = [*row[:_FIRST_SUM], list(row[_FIRST_SUM:])]
        account = AccountRow(*columns)
        account.roll(self._starts_now())
        return account

    def _new_account(self, account_id: str) -> AccountRow:
        self.database.execute("INSERT INTO accounts (id) VALUES (?)", (account_id,))
        account = self._account(account_id)
        assert account is not None
        return account

    def _write(self, account: AccountRow) -> None:
        self.database.execute(_WRITE, (*account.row(), account.number))

    def _proxy(self, proxy_id: str) -> int:
        number = self._proxies.get(proxy_id)
        if number is None:
            self.database.execute("INSERT OR IGNORE INTO proxies (id) VALUES (?)", (proxy_id,))
            (number,) = self.database.execute("SELECT number FROM proxies WHERE id = ?", (proxy_id,)).fetchone()
            self._proxies[proxy_id] = number
        return number

    # --- time ---

    def _starts_now(self) -> tuple[float, ...]:
        """The starts of the periods of this moment."""
        now = self.wall()
        if now // HOUR != self._starts_of:
            self._starts_of = now // HOUR
            self._starts = tuple(period_at(kind, now)[0] for kind in PERIODS)
        return self._starts

    def _current_hour(self) -> int:
        hour = int(self.wall()) // HOUR
        self._hour = self._hour if self._hour - BACKWARD_MAX <= hour < self._hour else hour
        return self._hour


def _activity(account: AccountRow, period: str, lines: Iterable[CountedLine]) -> AccountActivity:
    open_at = Counter[str]()
    for each in lines:
        open_at[each.proxy_id] += each.connections
    at = tuple(proxy for proxy, count in open_at.most_common(PROXIES_MAX) if count)
    return AccountActivity(account.usage(period), open_at.total(), account.last_seen, account.client_ip, at)
