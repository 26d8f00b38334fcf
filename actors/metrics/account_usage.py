"""What accounts have used over all proxies, kept on disk to the byte.

Each process reports what it has counted since it began to hold an account (`ReportUsage`). The ledger keeps the last
report of every process, and adds the difference to the account's sums and to the present hour, all in one transaction
with the report itself. So a report may be sent again, come late or get lost with this process, and still every byte
counts once. What a process had counted when it was killed is in its file (`actors.usage_file`).

Bytes belong to the period, and to the hour, in which their report arrives. A closed hour never changes: when the clock
is set back a little, its last hour goes on.

The file of what accounts have used: its tables. `accounts` has what each has used in the present day, week, month and
in total; `used`, in its `period` since `since`, is there to sort by. `warned` and `reached` are the starts of the
periods for which there was an event; events wait in `notices` until they are published. `reports` has the last report
of each process, and `ended` the processes whose last one is taken. `hours` and `days` are what was used when: by number
of the hour or day since 1970, account and proxy.

The events of accounts that come near their quotas or reach them: once each in a period, also through restarts. An event
is stored in the same transaction as the usage that it is about, and deleted when it was published. One that was
published right before the collector died is published again with its id, by which receivers know it.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from actors.bus.events import new_event
from actors.bus.messages.accounts import (
    CREDENTIAL,
    AccountActivity,
    AccountReport,
    AccountTotal,
    AccountUsage,
    Counted,
    PushTotals,
    ReportUsage,
)
from actors.bus.messages.events import Event
from actors.sqlite import open_database, transaction
from actors.usage_file import BYTES_IN, SERIAL, FileRecord
from config.model.choices import PERIODS, period_at
from config.text.formatting import timestamp_text

FIGURES = ("bytes_in", "bytes_out", "requests", "milliseconds", "refusals")
"""What is counted of an account, as columns."""
SUMS = tuple(f"{kind}_{column}" for kind in PERIODS for column in ("since", "in", "out"))

_FIGURES = ", ".join(f"{name} INTEGER NOT NULL" for name in FIGURES)
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
CREATE TABLE IF NOT EXISTS reports (
    account INTEGER, instance INTEGER, proxy INTEGER NOT NULL, serial INTEGER NOT NULL, {_FIGURES},
    connections INTEGER NOT NULL, PRIMARY KEY (account, instance)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS reports_by_instance ON reports (instance);
CREATE TABLE IF NOT EXISTS notices (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ended (instance INTEGER PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS hours (
    hour INTEGER, account INTEGER, proxy INTEGER, {_FIGURES}, PRIMARY KEY (hour, account, proxy)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS days (
    day INTEGER, account INTEGER, proxy INTEGER, {_FIGURES}, PRIMARY KEY (day, account, proxy)
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
KEPT_DAYS = 400
"""Days that hours and days of usage are kept."""
ENDED_KEPT = 7.0 * DAY
"""Seconds for which late reports of a process that has ended are recognized."""
BACKWARD_MAX = 24
"""Hours that the clock may be set back without another hour than the last being written to."""

PROXIES_MAX = 50
"""Proxies that the activity of an account names."""

_OPEN = (
    "SELECT proxies.id, sum(connections) FROM reports JOIN proxies ON proxies.number = reports.proxy"
    " WHERE account = ? AND connections > 0 GROUP BY proxies.id ORDER BY 2 DESC"
)
_COLUMNS = ("number", "id", "username", "gone", "period", "since", "used", "last_seen", "client_ip", *SUMS)
_READ = f"SELECT {', '.join(_COLUMNS)} FROM accounts WHERE id = ?"  # noqa: S608 - names of ours
_WRITTEN = _COLUMNS[2:]
_WRITE = f"UPDATE accounts SET {', '.join(f'{name} = ?' for name in _WRITTEN)} WHERE number = ?"  # noqa: S608 - names of ours
_LAST = f"SELECT serial, {', '.join(FIGURES)}, connections FROM reports WHERE account = ? AND instance = ?"  # noqa: S608 - names of ours
_KEEP = f"INSERT OR REPLACE INTO reports VALUES ({', '.join('?' * (5 + len(FIGURES)))})"  # noqa: S608 - names of ours
_REACHED = "SELECT id, period, since FROM accounts WHERE reached = since AND NOT gone AND substr(id, 1, 4) <> ?"
_NOTHING = (0,) * len(FIGURES)
_FIRST_SUM = len(_COLUMNS) - len(SUMS)

Process = tuple[str, int]
"""Proxy id and instance."""
_Holder = tuple[str, int, int, int, int]
"""Proxy id and instance of a process, and serial, bytes in and bytes out of its last report of an account."""


def _adding(table: str, column: str) -> str:
    added = ", ".join(f"{name} = {name} + excluded.{name}" for name in FIGURES)
    marks = ", ".join("?" * (3 + len(FIGURES)))
    return f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT ({column}, account, proxy) DO UPDATE SET {added}"  # noqa: S608 - names of ours


_ADD_TO_HOUR, _ADD_TO_DAY = _adding("hours", "hour"), _adding("days", "day")


class Crossing(NamedTuple):
    """An account whose usage has come nearer to its quota, or has reached it."""

    account_id: str
    username: str
    quota: int
    usage: AccountUsage


@dataclass(slots=True)
class _Account:
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

    def __init__(self, folder: Path, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._database = open_database(folder / "usage.sqlite", SCHEMA)
        self.notices = QuotaNotices(self._database)
        self._proxies: dict[str, int] = {}
        self._hour: int = self._database.execute("SELECT ifnull(max(hour), 0) FROM hours").fetchone()[0]
        self._starts_of = -1.0
        self._starts: tuple[float, ...] = ()
        self.crossings: list[Crossing] = []
        """The accounts that reports have brought nearer to their quotas; to be taken by the caller."""

    @contextmanager
    def changes(self) -> Iterator[None]:
        """All changes within are stored together."""
        self._proxies_before = dict(self._proxies)
        try:
            with transaction(self._database):
                yield
        except BaseException:  # SystemExit too: the transaction is rolled back
            self._proxies = self._proxies_before
            self.crossings.clear()
            raise

    def update(self, report: ReportUsage) -> dict[str, AccountTotal]:
        """Take what one process has counted; returns the usage of the same accounts over all proxies."""
        if self._has_ended(report.instance):
            return {}
        process = (report.proxy_id, report.instance)
        totals = {each: self._update(process, each, counted) for each, counted in report.accounts.items()}
        if not report.with_others:
            return totals
        return {each: replace(total, others=self._others(each, process)) for each, total in totals.items()}

    def take_file(self, process: Process, records: Iterable[FileRecord]) -> None:
        """Take what a process that has ended had counted at last. Its reports count no more from now on."""
        _, instance = process
        if self._has_ended(instance):
            return
        for account_id, numbers in records:
            account = self._account(account_id)
            if account is None:
                if account_id.startswith(CREDENTIAL):
                    continue  # without a quota
                account = self._new_account(account_id)
            figures = numbers[BYTES_IN : BYTES_IN + len(FIGURES)]
            if any(self._add_difference(account, process, numbers[SERIAL], figures, 0)):
                self._write(account)
        self._database.execute("DELETE FROM reports WHERE instance = ?", (instance,))
        self._database.execute("INSERT OR IGNORE INTO ended VALUES (?, ?)", (instance, self._wall()))

    def usage(self, periods: dict[str, str]) -> dict[str, AccountActivity]:
        """Of these accounts, by id, in the period that each has; those that were never used are left out."""
        found = ((each, period, self._account(each)) for each, period in periods.items())
        return {each: self._activity(account, period) for each, period, account in found if account is not None}

    def reached(self, limit: int) -> list[str]:
        """Ids of accounts that have reached their quota in the present period."""
        starts = dict(zip(PERIODS, self._starts_now(), strict=True))
        rows = self._database.execute(_REACHED, (CREDENTIAL,))
        return list(islice((each for each, period, since in rows if starts.get(period) == since), limit))

    def reset(self, account_ids: Iterable[str]) -> None:
        """Nothing is used from now on, in any period."""
        for account_id in account_ids:
            account = self._account(account_id)
            if account is not None:
                for place in range(0, len(account.sums), 3):
                    account.sums[place + 1] = account.sums[place + 2] = 0
                self._write(account)
                self._database.execute(
                    "UPDATE accounts SET warned = NULL, reached = NULL WHERE number = ?", (account.number,)
                )

    def forget(self, account_ids: Sequence[str]) -> None:
        """These accounts were removed; their hours stay under their names."""
        self.reset(account_ids)
        self._database.executemany("UPDATE accounts SET gone = 1 WHERE id = ?", [(each,) for each in account_ids])
        self._database.execute("DELETE FROM accounts WHERE gone AND substr(id, 1, 4) = ?", (CREDENTIAL,))

    def pushes(self, account_ids: Iterable[str]) -> dict[Process, PushTotals]:
        """The totals of these accounts for each process that has reported them."""
        totals: dict[Process, dict[str, AccountTotal]] = {}
        for account_id in account_ids:
            account = self._account(account_id)
            if account is None:
                continue
            holders = self._holders(account.number)
            for proxy_id, instance, serial, bytes_in, bytes_out in holders:
                process = (proxy_id, instance)
                total = _total(account.usage(account.period), serial, bytes_in, bytes_out, _others(holders, process))
                totals.setdefault(process, {})[account_id] = total
        return {process: PushTotals(accounts) for process, accounts in totals.items()}

    def holders(self, account_ids: Iterable[str]) -> dict[Process, list[str]]:
        """The processes that have reported these accounts, with the accounts that each has."""
        return {process: list(push.accounts) for process, push in self.pushes(account_ids).items()}

    def prune(self) -> None:
        """Delete what is older than it is kept."""
        day = int(self._wall()) // DAY - KEPT_DAYS
        self._database.execute("DELETE FROM hours WHERE hour < ?", (day * 24,))
        self._database.execute("DELETE FROM days WHERE day < ?", (day,))
        self._database.execute(
            "DELETE FROM accounts WHERE (gone OR substr(id, 1, 4) = ?) AND last_seen < ?", (CREDENTIAL, (day - 1) * DAY)
        )
        self._database.execute("DELETE FROM ended WHERE at < ?", (self._wall() - ENDED_KEPT,))

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # --- one account of one report ---

    def _update(self, process: Process, account_id: str, counted: AccountReport) -> AccountTotal:
        account = self._account(account_id)
        figures = (counted.bytes_in, counted.bytes_out, counted.requests, counted.milliseconds, counted.refusals)
        if account is None:
            used = any(figures) or counted.connections
            if not (counted.quota or (used and not account_id.startswith(CREDENTIAL))):
                return self._unused(counted)  # most accounts are never used
            account = self._new_account(account_id)
        before = account.usage(counted.period)
        self._add_difference(account, process, counted.serial, figures, counted.connections)
        account.username, account.period = counted.username, counted.period
        if counted.last_seen > account.last_seen:
            account.last_seen, account.client_ip = counted.last_seen, counted.client_ip
        self._write(account)
        usage = account.usage(counted.period)
        self._note_crossing(account, counted, before, usage)
        if not account_id.startswith(CREDENTIAL):
            self.notices.note(account.number, account_id, account.username, counted.quota, usage)
        return _total(usage, counted.serial, counted.bytes_in, counted.bytes_out)

    def _add_difference(
        self, account: _Account, process: Process, serial: int, figures: Sequence[int], connections: int
    ) -> Sequence[int]:
        """Add what the process has counted since its last report; returns that."""
        proxy_id, instance = process
        last = self._database.execute(_LAST, (account.number, instance)).fetchone()
        before = last[1:-1] if last is not None and last[0] == serial else _NOTHING
        if last is not None and serial < last[0]:
            return _NOTHING  # an old report that has come late
        if last is not None and last == (serial, *figures, connections):
            return _NOTHING
        added = tuple(map(int.__sub__, figures, before))
        if min(added) < 0:
            return _NOTHING  # as well
        proxy = self._proxy(proxy_id)
        self._database.execute(_KEEP, (account.number, instance, proxy, serial, *figures, connections))
        if any(added):
            account.add(added[0], added[1])
        if any(added) and not account.id.startswith(CREDENTIAL):
            hour = self._current_hour()
            self._database.execute(_ADD_TO_HOUR, (hour, account.number, proxy, *added))
            self._database.execute(_ADD_TO_DAY, (hour // 24, account.number, proxy, *added))
        return added

    def _note_crossing(
        self, account: _Account, counted: AccountReport, before: AccountUsage, usage: AccountUsage
    ) -> None:
        """Note when what is left of the quota has halved, or nothing is left."""
        left_before = counted.quota - before.bytes_in - before.bytes_out
        left = counted.quota - usage.bytes_in - usage.bytes_out
        if counted.quota and left < left_before and max(left, 0).bit_length() != max(left_before, 0).bit_length():
            self.crossings.append(Crossing(account.id, account.username, counted.quota, usage))

    def _unused(self, counted: AccountReport) -> AccountTotal:
        since = self._starts_now()[PERIODS.index(counted.period)]
        return AccountTotal(counted.period, since, 0, 0, counted.serial, 0, 0)

    # --- rows ---

    def _account(self, account_id: str) -> _Account | None:
        """The account in the periods of this moment."""
        row = self._database.execute(_READ, (account_id,)).fetchone()
        if row is None:
            return None
        columns = [*row[:_FIRST_SUM], list(row[_FIRST_SUM:])]
        account = _Account(*columns)
        account.roll(self._starts_now())
        return account

    def _new_account(self, account_id: str) -> _Account:
        self._database.execute("INSERT INTO accounts (id) VALUES (?)", (account_id,))
        account = self._account(account_id)
        assert account is not None
        return account

    def _write(self, account: _Account) -> None:
        self._database.execute(_WRITE, (*account.row(), account.number))

    def _proxy(self, proxy_id: str) -> int:
        number = self._proxies.get(proxy_id)
        if number is None:
            self._database.execute("INSERT OR IGNORE INTO proxies (id) VALUES (?)", (proxy_id,))
            (number,) = self._database.execute("SELECT number FROM proxies WHERE id = ?", (proxy_id,)).fetchone()
            self._proxies[proxy_id] = number
        return number

    def _activity(self, account: _Account, period: str) -> AccountActivity:
        found = self._database.execute(_OPEN, (account.number,)).fetchall()
        at = tuple(proxy for proxy, _ in found[:PROXIES_MAX])
        open_now = sum(connections for _, connections in found)
        return AccountActivity(account.usage(period), open_now, account.last_seen, account.client_ip, at)

    def _holders(self, number: int) -> list[_Holder]:
        return self._database.execute(
            "SELECT proxies.id, instance, serial, bytes_in, bytes_out FROM reports"
            " JOIN proxies ON proxies.number = reports.proxy WHERE account = ?",
            (number,),
        ).fetchall()

    def _others(self, account_id: str, process: Process) -> tuple[Counted, ...]:
        account = self._account(account_id)
        return () if account is None else _others(self._holders(account.number), process)

    def _has_ended(self, instance: int) -> bool:
        return self._database.execute("SELECT 1 FROM ended WHERE instance = ?", (instance,)).fetchone() is not None

    # --- time ---

    def _starts_now(self) -> tuple[float, ...]:
        """The starts of the periods of this moment."""
        now = self._wall()
        if now // HOUR != self._starts_of:
            self._starts_of = now // HOUR
            self._starts = tuple(period_at(kind, now)[0] for kind in PERIODS)
        return self._starts

    def _current_hour(self) -> int:
        hour = int(self._wall()) // HOUR
        self._hour = self._hour if self._hour - BACKWARD_MAX <= hour < self._hour else hour
        return self._hour


def _others(holders: Iterable[_Holder], process: Process) -> tuple[Counted, ...]:
    """What is reported by the other processes of the same proxy."""
    proxy_id, instance = process
    return tuple(
        (other, serial, bytes_in + bytes_out)
        for of, other, serial, bytes_in, bytes_out in holders
        if of == proxy_id and other != instance
    )


def _total(
    usage: AccountUsage, serial: int, bytes_in: int, bytes_out: int, others: tuple[Counted, ...] = ()
) -> AccountTotal:
    return AccountTotal(usage.period, usage.since, usage.bytes_in, usage.bytes_out, serial, bytes_in, bytes_out, others)
