"""The part of the collector's file that a node of a fleet has: what the database lacks, and what it may use of quotas.

Each change of an hour gets the next number. What is reported is all rows with numbers after the last one that is
acknowledged, with the figures that this ledger has counted since it was begun: so a report can be made again at any
time. `ledger` is an id made with the file. A file that was restored has numbers which the database knows already: it
gets a new id, and begins at zero.

The sums of `accounts` are of all nodes then: what the database said last, and what was booked here since the report
that it replied to. `shares` has how that bounds an account here: `basis` is what all nodes had used of the period, and
the lease what may be used here beyond it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import uuid4

from actors.bus.messages.accounts import CREDENTIAL, AccountUsage
from actors.cluster.usage_report import FleetTotal, LedgerReport, LedgerRow, ReportedAccount
from actors.metrics.usage.account_usage import FIGURES, FIGURES_SQL, HOUR, UsageLedger
from actors.state.booked_usage import CountedLine
from actors.state.table import FOREVER
from config.model.choices import PERIODS

log = logging.getLogger(__name__)

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS reporting (
    one INTEGER PRIMARY KEY CHECK (one = 1), ledger TEXT NOT NULL, nodes INTEGER NOT NULL DEFAULT 1,
    number INTEGER NOT NULL DEFAULT 0, acknowledged INTEGER NOT NULL DEFAULT 0, deleted INTEGER NOT NULL DEFAULT 0,
    counted INTEGER NOT NULL DEFAULT 0, reported INTEGER NOT NULL DEFAULT 0, since REAL NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS changes (
    hour INTEGER, account INTEGER, proxy INTEGER, number INTEGER NOT NULL, {FIGURES_SQL},
    PRIMARY KEY (hour, account, proxy)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS changes_by_number ON changes (number);
CREATE TABLE IF NOT EXISTS shares (
    account INTEGER PRIMARY KEY, generation INTEGER NOT NULL DEFAULT 0, since INTEGER NOT NULL DEFAULT 0,
    basis INTEGER NOT NULL DEFAULT 0, lease INTEGER, leased INTEGER NOT NULL DEFAULT 0
);
"""
ROWS_AT_ONCE = 2_000
WEEK = 7 * 24
FIRST = 256 * 1024
"""Bytes that an account may use before the first reply about it."""
NO_PROXY = 0
"""What credentials use has no proxy."""

_ADDED = ", ".join(f"{name} = {name} + excluded.{name}" for name in FIGURES)
_NOTE = (
    f"INSERT INTO changes VALUES ({', '.join('?' * (4 + len(FIGURES)))})"  # noqa: S608 - names of ours
    f" ON CONFLICT (hour, account, proxy) DO UPDATE SET number = excluded.number, {_ADDED}"
)
_UNREPORTED = (
    f"SELECT c.number, hour, a.id, ifnull(p.id, ''), {', '.join(FIGURES)} FROM changes c"  # noqa: S608 - names of ours
    " JOIN accounts a ON a.number = c.account LEFT JOIN proxies p ON p.number = c.proxy"
    " WHERE c.number > ? ORDER BY c.number LIMIT ?"
)
_FIGURES_OF = f"SELECT {', '.join(FIGURES)} FROM changes WHERE hour = ? AND account = ? AND proxy = ?"  # noqa: S608
_WITHOUT = (
    f"UPDATE changes SET {', '.join(f'{name} = {name} - ?' for name in FIGURES)}"  # noqa: S608 - names of ours
    " WHERE hour = ? AND account = ? AND proxy = ?"
)
_SHARE = (
    "INSERT INTO shares (account, generation, since, basis, lease, leased) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (account) DO UPDATE SET generation = excluded.generation, since = excluded.since,"
    " basis = excluded.basis, lease = excluded.lease, leased = excluded.leased"
)


class PreparedReport(NamedTuple):
    """A report, with what the file had at that moment: `counted` bytes, and by account its sums.

    An account has none when not all of it is in the report.
    """

    report: LedgerReport
    counted: int
    sums: Mapping[str, Sequence[float]]
    is_all: bool
    """Whether nothing is left to be reported."""
    is_greeting: bool = False
    """Whether it only asks what the database knows of this ledger."""


class UsageChanges:
    """Of the ledger of a node. All but the constructor is done within `UsageLedger.changes`; raises as that does."""

    def __init__(self, ledger: UsageLedger) -> None:
        self._ledger = ledger
        self._database = ledger.database
        self.quotas: dict[str, tuple[int, str]] = {}
        """By id, bytes and kind of period of the accounts with a quota that are in use here."""
        self._database.executescript(SCHEMA)
        with ledger.changes():
            if not self._database.execute("SELECT 1 FROM reporting").fetchone():
                self._database.execute("INSERT INTO reporting (one, ledger) VALUES (1, ?)", (uuid4().hex,))
                self._begin()
        row = self._database.execute("SELECT ledger, number, nodes FROM reporting").fetchone()
        self.ledger: str = row[0]
        self._number: int = row[1]
        self.nodes: int = row[2]
        self._opened_at: int | None = self._number
        """The number that the file had, until the database has said what it knows of this ledger."""
        self._opened_with: dict[tuple[int, int, int], tuple[int, ...]] = {}
        """As long, what the file had of rows that have changed since."""

    def _begin(self) -> None:
        """The first rows: what was used before there was a fleet, in hours that count in the same periods.

        The day's is in its first hour; what the week or the month has beyond that is in theirs, and the rest in the
        hour 0. Those who were seen last are the first.
        """
        starts = sorted(zip(self._ledger.starts(), PERIODS, strict=True), reverse=True)
        before = "0", "0"
        for place, (start, kind) in enumerate(starts, 1):
            sums = [f"iif({kind}_since = {start}, {kind}_{way}, 0)" for way in ("in", "out")]
            more_in, more_out = (f"max(0, {now} - {then})" for now, then in zip(sums, before, strict=True))
            self._database.execute(
                f"INSERT INTO changes SELECT {int(start // HOUR)}, number, {NO_PROXY}, {place} + {len(starts)} * ("  # noqa: S608
                f"row_number() OVER (ORDER BY last_seen DESC, number) - 1), {more_in}, {more_out}, 0, 0, 0"
                " FROM accounts WHERE NOT gone AND total_in + total_out > 0"
                f" ON CONFLICT (hour, account, proxy) DO UPDATE SET number = excluded.number, {_ADDED}"
            )
            before = sums[0], sums[1]
        self._database.execute("DELETE FROM changes WHERE bytes_in + bytes_out = 0")
        self._database.execute(
            "UPDATE reporting SET number = (SELECT ifnull(max(number), 0) FROM changes),"
            " counted = (SELECT ifnull(sum(bytes_in + bytes_out), 0) FROM changes), since = ?",
            (self._ledger.wall(),),
        )

    # --- what is booked ---

    def note(self, hour: int, account: int, proxy: int, added: Sequence[int]) -> None:
        """So much more was used of an account in an hour."""
        if self._opened_at is not None and (hour, account, proxy) not in self._opened_with:
            row = self._database.execute(_FIGURES_OF, (hour, account, proxy)).fetchone()
            self._opened_with[hour, account, proxy] = row or (0,) * len(FIGURES)
        self._number += 1
        self._database.execute(_NOTE, (hour, account, proxy, self._number, *added))
        self._database.execute(
            "UPDATE reporting SET since = iif(counted > reported, since, ?), number = ?, counted = counted + ?",
            (self._ledger.wall(), self._number, added[0] + added[1]),
        )

    def saw(self, counted: CountedLine) -> None:
        """A process counts an account, with this quota."""
        if counted.quota:
            self.quotas[counted.account_id] = counted.quota, counted.period
        else:
            self.quotas.pop(counted.account_id, None)

    def prune(self) -> None:
        """Delete what is acknowledged and older than a week."""
        hour = int(self._ledger.wall() // HOUR) - WEEK
        (last,) = self._database.execute(
            "SELECT max(c.number) FROM changes c, reporting WHERE hour < ? AND c.number <= acknowledged", (hour,)
        ).fetchone()
        if last is not None:
            self._database.execute("UPDATE reporting SET deleted = max(deleted, ?)", (last,))
            self._database.execute(
                "DELETE FROM changes WHERE hour < ? AND number <= (SELECT acknowledged FROM reporting)", (hour,)
            )

    # --- reports ---

    def prepared(self, asking: Collection[str], giving_back: Collection[str]) -> PreparedReport | None:
        """The next report, with leases asked and given back for these accounts as well; None when there is nothing."""
        acknowledged, counted = self._database.execute("SELECT acknowledged, counted FROM reporting").fetchone()
        if self._opened_at is not None:
            return PreparedReport(LedgerReport(acknowledged, acknowledged, 0, (), ()), counted, {}, False, True)
        rows = [LedgerRow(*row) for row in self._database.execute(_UNREPORTED, (acknowledged, ROWS_AT_ONCE))]
        accounts = {each.account for each in rows} | {*asking} | {*giving_back}
        if not accounts:
            return None
        is_all = len(rows) < ROWS_AT_ONCE
        upto = self._number if is_all else rows[-1].number
        later = "SELECT id, hour FROM changes c JOIN accounts a ON a.number = c.account WHERE c.number > ?"
        remain = [] if is_all else self._database.execute(later, (upto,)).fetchall()
        settles = min((hour for _, hour in remain), default=int(self._ledger.wall() // HOUR) - 1)
        partly = {account for account, _ in remain}
        sums = {each: self._ledger.sums(each) for each in accounts - partly}
        asked = [self._asked(each, each not in giving_back) for each in accounts]
        return PreparedReport(LedgerReport(acknowledged, upto, settles, rows, asked), counted, sums, is_all)

    def _asked(self, account_id: str, lease: bool) -> ReportedAccount:
        row = self._database.execute(
            "SELECT ifnull(generation, 0), period, last_seen, client_ip, username FROM accounts"
            " LEFT JOIN shares ON account = number WHERE id = ?",
            (account_id,),
        ).fetchone()
        generation, period, last_seen, client, username = row or (0, "total", 0.0, "", "")
        quota, period = self.quotas.get(account_id, (0, period))
        return ReportedAccount(account_id, generation, quota, period, lease and quota > 0, last_seen, client, username)

    def acknowledge(self, prepared: PreparedReport, nodes: int) -> None:
        """The database has it."""
        self.nodes = nodes
        self._database.execute(
            "UPDATE reporting SET acknowledged = ?, reported = ?, since = ?, nodes = ?",
            (prepared.report.upto, prepared.counted, self._ledger.wall(), nodes),
        )

    def greeted(self, number: int) -> None:
        """The database knows so much of this ledger. A file that had less was restored, and gets a new id."""
        opened_at, self._opened_at = self._opened_at, None
        opened_with, self._opened_with = self._opened_with, {}
        if opened_at is None or number <= opened_at:
            return
        self.ledger = uuid4().hex
        self._database.execute("DELETE FROM changes WHERE number <= ?", (opened_at,))
        for key, figures in opened_with.items():
            self._database.execute(_WITHOUT, (*figures, *key))
        self._database.execute("UPDATE reporting SET ledger = ?, acknowledged = 0, deleted = 0", (self.ledger,))
        log.warning("the file with the usage of accounts was restored; it is another one for the fleet from now on")

    def rewind(self, number: int) -> None:
        """The database was restored: it has what this ledger had up to this number alone."""
        (deleted,) = self._database.execute("SELECT deleted FROM reporting").fetchone()
        self._database.execute(
            "UPDATE reporting SET acknowledged = ?, reported = counted - ifnull("
            "(SELECT sum(bytes_in + bytes_out) FROM changes WHERE number > ?), 0)",
            (number, number),
        )
        if number < deleted:
            log.warning("the fleet's database was restored to a time more than a week ago: usage of then is missing")

    # --- what all nodes have used ---

    def unreported_accounts(self) -> set[str]:
        """Those with something that the database lacks."""
        rows = self._database.execute(
            "SELECT DISTINCT id FROM changes c, reporting JOIN accounts a ON a.number = c.account"
            " WHERE c.number > acknowledged"
        )
        return {account for (account,) in rows}

    def take(self, total: FleetTotal, before: Sequence[float] | None) -> None:
        """What all nodes have used. `before` are the sums that were reported; None: nothing is unreported."""
        if not any(total.sums[10:]) and not self._ledger.sums(total.account):
            return  # it was removed
        account = self._ledger.fleet_account(total.account)
        row = self._database.execute(
            "SELECT generation, since, lease FROM shares WHERE account = ?", (account.number,)
        ).fetchone()
        if row is not None and row[0] > total.generation:
            return  # the database was restored to a time before a reset, which the next report makes good
        sums = [*total.sums]
        for place in range(0, len(sums), 3):
            since, *now = map(int, account.sums[place : place + 3])
            if since > sums[place]:
                sums[place : place + 3] = since, *now  # it has begun here a moment earlier
            elif since == sums[place] and before is not None:
                base = before[place + 1 : place + 3] if before and before[place] == since else (0, 0)
                for at in (0, 1):
                    sums[place + 1 + at] += now[at] - int(base[at])
        self._ledger.set_sums(account, sums, total.last_seen, total.client, total.username)
        self._announce(account.number, total)
        quota, period = self.quotas.get(total.account, (0, account.period))
        at = 3 * PERIODS.index(period)
        since, basis = int(total.sums[at]), sum(total.sums[at + 1 : at + 3])
        lease = total.lease
        if lease is None:
            lease = row[2] if row is not None and row[1] == since else None
        if quota or total.generation or row is not None:
            self._database.execute(_SHARE, (account.number, total.generation, since, basis, lease, total.leased))

    def _announce(self, number: int, total: FleetTotal) -> None:
        """The events of a quota, where this node is the one that announces them."""
        for column, since, is_ours in (
            ("warned", total.warned, total.warns),
            ("reached", total.reached, total.reaches),
        ):
            if not is_ours:
                value = since if since >= 0 else None
                self._database.execute(f"UPDATE accounts SET {column} = ? WHERE number = ?", (value, number))  # noqa: S608
        known = self.quotas.get(total.account)
        if (total.warns or total.reaches) and known is not None and not total.account.startswith(CREDENTIAL):
            at = 3 * PERIODS.index(known[1])
            since, bytes_in, bytes_out = total.sums[at : at + 3]
            usage = AccountUsage(known[1], float(since), bytes_in, bytes_out)
            self._ledger.notices.note(number, total.account, total.username, known[0], usage)

    def released(self, account_ids: Iterable[str]) -> None:
        """These are not used here now: their leases are given back."""
        self._database.executemany(
            "UPDATE shares SET lease = NULL WHERE account = (SELECT number FROM accounts WHERE id = ?)",
            [(each,) for each in account_ids],
        )

    def begin_generations(self, generations: Mapping[str, int]) -> None:
        """Nothing is used of these accounts on any node."""
        for account_id, generation in generations.items():
            number = self._ledger.fleet_account(account_id).number
            self._database.execute(_SHARE, (number, generation, 0, 0, None, 0))

    # --- how far it goes ---

    def may_use(self, account_id: str, usage: AccountUsage, policy: str | None) -> int:
        """Bytes of the period up to which an account may be used here.

        `policy` is `cluster.quota_offline` while the node is cut off from the database, else None.
        """
        quota, period = self.quotas.get(account_id, (0, ""))
        if not quota or period != usage.period or policy == "unlimited":
            return FOREVER
        used = usage.bytes_in + usage.bytes_out
        row = self._share(account_id, int(usage.since), used)
        if row is None:  # it has another period, of which no node has said anything yet
            return max(quota // self.nodes, FIRST) if policy is not None else used + FIRST
        basis, lease, leased = row
        if self._opened_at is not None and policy is None:
            lease = None  # others may have it by now: the node was away, and the database has not responded yet
        may_use = basis + (FIRST if lease is None else lease)
        if policy == "share":
            may_use += max(0, quota - basis - leased) // self.nodes
        return may_use

    def _share(self, account_id: str, since: int, used: int) -> tuple[int, int | None, int] | None:
        """Basis, lease and all leases of the present period. An account that is used for the first time begins here."""
        row = self._database.execute(
            "SELECT s.since, basis, lease, leased FROM shares s JOIN accounts ON number = account WHERE id = ?",
            (account_id,),
        ).fetchone()
        if row is None:
            number = self._ledger.fleet_account(account_id).number
            row = since, used, None, 0
            self._database.execute(_SHARE, (number, 0, *row))
        return row[1:] if row[0] == since else None

    def is_short(self, account_id: str, usage: AccountUsage) -> bool:
        """Whether half of the lease is used, or there is none."""
        used = usage.bytes_in + usage.bytes_out
        row = self._share(account_id, int(usage.since), used)
        if row is None or row[1] is None:
            return True
        return used - row[0] >= row[1] // 2
