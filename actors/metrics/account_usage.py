"""What accounts have used, kept on disk, so that neither a restart of a proxy nor one of the product forgets it.

As with totals, each process of a proxy says again and again what it has counted in the period, and the usage is the
sum of the last words of all. A word of another period than that of our own clock counts nothing, and neither does one
from before the last reset: the answer tells the process where it is. A new period and a reset begin with no words.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from actors.bus.messages.accounts import AccountUsage, ReportUsage
from actors.sqlite import open_database
from config.model.quotas import PERIODS, period_at

FOLDED_AFTER = 3600.0
"""Seconds of silence after which a process is gone, and its word is added to those of other gone ones."""
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
class _Word:
    bytes_in: int
    bytes_out: int
    heard: float


@dataclass(slots=True)
class _Account:
    period: str
    since: float
    resets: int = 0
    words: dict[int, _Word] = field(default_factory=dict)

    def begin(self, period: str, since: float) -> None:
        """Another period, and nothing used in it."""
        self.period, self.since = period, since
        self.words.clear()

    def usage(self) -> AccountUsage:
        """Over all processes."""
        words = self.words.values()
        used_in, used_out = sum(word.bytes_in for word in words), sum(word.bytes_out for word in words)
        return AccountUsage(self.period, self.since, self.resets, used_in, used_out)

    def fold(self, now: float) -> None:
        """Add up those that are gone; the newest may only be idle."""
        newest = max(self.words, default=_FOLDED)
        gone = [each for each, word in self.words.items() if each != newest and now - word.heard > FOLDED_AFTER]
        if len(gone) > 1:
            taken = [self.words.pop(each) for each in gone]
            total_in, total_out = sum(word.bytes_in for word in taken), sum(word.bytes_out for word in taken)
            self.words[_FOLDED] = _Word(total_in, total_out, now - FOLDED_AFTER)


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

    def take(self, told: ReportUsage) -> dict[str, AccountUsage]:
        """A process said what it has counted; what all have."""
        return {each: self._take((told.proxy_id, each), told.instance, said) for each, said in told.accounts.items()}

    def usage(self, proxy_id: str) -> dict[str, AccountUsage]:
        """Of all accounts of a proxy that anything is known of."""
        return {key[1]: self._now(key).usage() for key in tuple(self._accounts) if key[0] == proxy_id}

    def reset(self, proxy_id: str, account_id: str) -> None:
        """Nothing is used from now on. Raises `sqlite3.Error` as `save`."""
        key = (proxy_id, account_id)
        account = self._accounts.setdefault(key, _Account("total", 0.0))
        account.words.clear()
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
        with self._database:  # commits, or rolls back when it raises
            self._database.execute("BEGIN")
            self._database.executemany("DELETE FROM usage WHERE proxy_id = ? AND account_id = ?", keys)
            rows = [row for key in keys for row in self._rows(key)]
            self._database.executemany("INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._changed.clear()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _take(self, key: _Key, instance: int, said: AccountUsage) -> AccountUsage:
        if key not in self._accounts and not (said.bytes_in or said.bytes_out or said.resets > 0):
            return replace(said, resets=0)  # most accounts are never used
        account = self._accounts.setdefault(key, _Account(said.period, said.since))
        if said.period != account.period and said.period in PERIODS:
            account.begin(said.period, period_at(said.period, self._wall())[0])
            self._changed.add(key)
        self._now(key)
        if said.resets > account.resets:
            account.resets = said.resets  # our file is younger than the process
        current = (said.period, said.since) == (account.period, account.since)
        if current and said.resets in (-1, account.resets):
            self._hear(key, account, instance, said)
        return account.usage()

    def _hear(self, key: _Key, account: _Account, instance: int, said: AccountUsage) -> None:
        before = account.words.get(instance)
        now = self._clock()
        account.words[instance] = _Word(said.bytes_in, said.bytes_out, now)
        if before is None or (before.bytes_in, before.bytes_out) != (said.bytes_in, said.bytes_out):
            account.fold(now)
            self._changed.add(key)

    def _now(self, key: _Key) -> _Account:
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
        words = account.words or {_FOLDED: _Word(0, 0, 0.0)}
        return [
            (*key, instance, account.period, account.since, account.resets, word.bytes_in, word.bytes_out)
            for instance, word in words.items()
        ]

    def _load(self) -> None:
        heard = self._clock()
        for row in self._database.execute("SELECT * FROM usage"):
            proxy_id, account_id, instance, period, since, resets, bytes_in, bytes_out = row
            account = self._accounts.setdefault((proxy_id, account_id), _Account(period, since, resets))
            account.words[instance] = _Word(bytes_in, bytes_out, heard)
