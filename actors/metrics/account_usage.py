"""What accounts have used, kept on disk, so that neither a restart of a proxy nor one of the product forgets it.

As with totals, each process of a proxy reports again and again what it has counted in the period, and the usage is the
sum of the last reports of all. A report for another period than that of our own clock counts nothing, and neither does
one from before the last reset: the reply has the current period and reset. A new period and a reset drop all reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from actors.bus.messages.accounts import AccountUsage, ReportUsage
from actors.sqlite import open_database, transaction
from config.model.quotas import PERIODS, period_at

FOLDED_AFTER = 3600.0
"""Seconds of silence after which a process is gone, and its report is added to those of other gone ones."""
_FOLDED = 0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS usage (
    proxy_id TEXT, account_id TEXT, instance INTEGER, period TEXT NOT NULL, since REAL NOT NULL,
    resets INTEGER NOT NULL, bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL,
    PRIMARY KEY (proxy_id, account_id, instance)
) WITHOUT ROWID;
"""

_Key = tuple[str, str]


@dataclass(slots=True)
class _Report:
    bytes_in: int
    bytes_out: int
    received: float


@dataclass(slots=True)
class _Account:
    period: str
    since: float
    resets: int = 0
    reports: dict[int, _Report] = field(default_factory=dict)
    """The last one of each process, by its instance."""

    def begin(self, period: str, since: float) -> None:
        """Another period, and nothing used in it."""
        self.period, self.since = period, since
        self.reports.clear()

    def usage(self) -> AccountUsage:
        """Over all processes."""
        return AccountUsage(self.period, self.since, self.resets, *_sums(self.reports.values()))

    def fold(self, now: float) -> None:
        """Add up those that are gone; the newest may only be idle."""
        newest = max(self.reports, default=_FOLDED)
        gone = [each for each, last in self.reports.items() if each != newest and now - last.received > FOLDED_AFTER]
        if len(gone) > 1:
            self.reports[_FOLDED] = _Report(*_sums([self.reports.pop(each) for each in gone]), now - FOLDED_AFTER)


class UsageLedger:
    """The usage of all accounts of all proxies. `clock` is monotonic, `wall` Unix seconds."""

    def __init__(
        self, folder: Path, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._database = open_database(folder / "usage.sqlite", _SCHEMA)
        self._accounts: dict[_Key, _Account] = {}
        self._changed: set[_Key] = set()
        self._load()

    def update(self, report: ReportUsage) -> dict[str, AccountUsage]:
        """Take what one process has counted; returns the usage of the same accounts over all processes."""
        return {
            account_id: self._update((report.proxy_id, account_id), report.instance, counted)
            for account_id, counted in report.accounts.items()
        }

    def usage(self, proxy_id: str) -> dict[str, AccountUsage]:
        """Of all accounts of a proxy that anything is known of."""
        return {key[1]: self._current(key).usage() for key in tuple(self._accounts) if key[0] == proxy_id}

    def reset(self, proxy_id: str, account_id: str) -> None:
        """Nothing is used from now on. Raises `sqlite3.Error` as `save`."""
        key = (proxy_id, account_id)
        account = self._accounts.setdefault(key, _Account("total", 0.0))
        account.reports.clear()
        account.resets += 1
        self._changed.add(key)
        self.save()

    def forget(self, proxy_id: str, account_ids: Iterable[str] | None = None) -> None:
        """These accounts are gone, or all of the proxy. Raises `sqlite3.Error` as `save`."""
        for key in tuple(self._accounts):
            if key[0] == proxy_id and (account_ids is None or key[1] in account_ids):
                del self._accounts[key]
                self._changed.add(key)
        self.save()

    def save(self) -> None:
        """Put on disk what has changed. Raises `sqlite3.Error`, and then everything is still to be saved."""
        if not self._changed:
            return
        keys = tuple(self._changed)
        with transaction(self._database):
            self._database.executemany("DELETE FROM usage WHERE proxy_id = ? AND account_id = ?", keys)
            rows = [row for key in keys for row in self._rows(key)]
            self._database.executemany("INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._changed.clear()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _update(self, key: _Key, instance: int, counted: AccountUsage) -> AccountUsage:
        if key not in self._accounts and not (counted.bytes_in or counted.bytes_out or counted.resets > 0):
            return replace(counted, resets=0)  # most accounts are never used
        account = self._accounts.setdefault(key, _Account(counted.period, counted.since))
        if counted.period != account.period and counted.period in PERIODS:
            account.begin(counted.period, period_at(counted.period, self._wall())[0])
            self._changed.add(key)
        self._current(key)
        if counted.resets > account.resets:
            account.resets = counted.resets  # our file is younger than the process
        current = (counted.period, counted.since) == (account.period, account.since)
        if current and counted.resets in (-1, account.resets):
            self._store_report(key, instance, counted)
        return account.usage()

    def _store_report(self, key: _Key, instance: int, counted: AccountUsage) -> None:
        account, now = self._accounts[key], self._clock()
        before = account.reports.get(instance)
        account.reports[instance] = _Report(counted.bytes_in, counted.bytes_out, now)
        if before is None or (before.bytes_in, before.bytes_out) != (counted.bytes_in, counted.bytes_out):
            account.fold(now)
            self._changed.add(key)

    def _current(self, key: _Key) -> _Account:
        """The account in the period of this moment."""
        account = self._accounts[key]
        since = period_at(account.period, self._wall())[0]
        if since != account.since:
            account.begin(account.period, since)
            self._changed.add(key)
        return account

    def _rows(self, key: _Key) -> list[tuple[object, ...]]:
        account = self._accounts.get(key)
        if account is None:
            return []
        reports = account.reports or {_FOLDED: _Report(0, 0, 0.0)}
        return [
            (*key, instance, account.period, account.since, account.resets, last.bytes_in, last.bytes_out)
            for instance, last in reports.items()
        ]

    def _load(self) -> None:
        now = self._clock()
        for row in self._database.execute("SELECT * FROM usage"):
            proxy_id, account_id, instance, period, since, resets, bytes_in, bytes_out = row
            account = self._accounts.setdefault((proxy_id, account_id), _Account(period, since, resets))
            account.reports[instance] = _Report(bytes_in, bytes_out, now)


def _sums(reports: Collection[_Report]) -> tuple[int, int]:
    return sum(each.bytes_in for each in reports), sum(each.bytes_out for each in reports)
