"""Reports usage to the fleet's database, and takes what all nodes have used: one thing at a time, in a thread.

Each second it reports what has changed, and at once for an account that has used half of its lease or has none. It
stays wanted until the database has responded: what is wanted while a report is on its way is sent right after that, and
a report that fails is made again at once, and then each second.

A node that is cut off, or has failed so often that the database is known to be away, goes on by what it knew last, as
`cluster.quota_offline` says.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from actors.bus.loop import Loop
from actors.bus.messages.accounts import AccountUsage
from actors.cluster.database import Database
from actors.cluster.errors import DatabaseError, level_of
from actors.cluster.usage_report import SLOT, FleetTotal, ReportReply, TotalsCursor, UsageTable
from actors.log_lines import ThrottledLog
from actors.metrics.usage.account_usage import UsageLedger
from actors.metrics.usage.changes import PreparedReport, UsageChanges
from actors.thread_pool import ThreadPool

log = logging.getLogger(__name__)

CUT_OFF_AFTER = 10.0
"""Seconds after the last exchange with the database."""
READ_EACH = 10.0
"""Seconds between two readings of what other nodes have changed."""
NEWS_LAST = 2 * CUT_OFF_AFTER
"""Seconds after which what the heartbeat has said is no reason not to look."""
LATE = 5.0
"""Seconds after the end of their slot until all changes of it are there to be read."""
GIVEN_BACK_AFTER = 5.0
"""Seconds after its last use that a lease is given back."""
TAKEN_AT_ONCE = 64
"""Totals that are taken in one turn of the loop: a few milliseconds."""

Done = Callable[[str | None], None]


class UsageBooks(Protocol):
    """The one that books."""

    def change(self, change: Callable[[], object]) -> str | None:
        """Make changes of the ledger in one transaction; why it failed, or None."""
        ...

    def totals_changed(self, account_ids: Iterable[str]) -> None:
        """Processes have to know what these accounts have used, and how far they may go."""
        ...


class UsageReporter:
    """Of a node. It opens and closes nothing but its thread; `database` is for it alone."""

    def __init__(
        self,
        loop: Loop,
        ledger: UsageLedger,
        database: Database,
        node: str,
        books: UsageBooks,
        quota_offline: str,
        may_reset: bool = True,
    ) -> None:
        """`node` is the node's id. What is gone, full nodes reset for all (`may_reset`). Raises `sqlite3.Error`."""
        self._quota_offline, self._may_reset = quota_offline, may_reset
        self.changes = UsageChanges(ledger)
        self._ledger = ledger
        self._loop = loop
        self._database = database
        self._table = UsageTable(database, node)
        self._books = books
        self._threads = ThreadPool(loop, 1)
        self._errors = ThrottledLog(log, "cannot report the usage of accounts")
        self._busy = self._closed = False
        self._used: dict[str, float] = {}
        """When accounts with a quota were used last, which may have a lease."""
        self._wanted: dict[str, None] = {}
        """Accounts that want a lease, until the database has responded."""
        self._is_behind = False
        """Whether more is to be reported than a report has room for."""
        self._connected_at = loop.now
        self._fails = False
        self._was_cut_off = self._was_away = False
        self._failure: Exception | None = None
        self._cursor = TotalsCursor(0, "")
        self._read_at = 0.0
        self._news_at = loop.now - NEWS_LAST
        self._changed_in = 0
        """The slot in which a node has changed totals last, as the heartbeat has said."""
        self._whole_until = 0
        """The first slot of which not everything may have been there at the last reading."""
        self._resets: list[tuple[Sequence[str], bool, Done]] = []
        ledger.follow(self.changes, database.time)

    def close(self) -> None:
        """End. What is on its way is reported again by the next collector."""
        self._closed = True
        self._threads.close()
        self._database.close()
        self._ledger.follow(None)

    @property
    def is_cut_off(self) -> bool:
        """Whether the database has not responded for so long."""
        return self._fails and self._loop.now - self._connected_at >= CUT_OFF_AFTER

    @property
    def is_away(self) -> bool:
        """Whether accounts go on without the database: it is known to be away, or this node is cut off from it."""
        return self._fails and (self.is_cut_off or not self._database.is_available)

    def may_use(self, account_id: str, usage: AccountUsage) -> int:
        """Bytes of the period up to which an account may be used here, which has used so much of it."""
        return self.changes.may_use(account_id, usage, self._quota_offline if self.is_away else None)

    def set_quota_offline(self, policy: str) -> None:
        """What accounts may use without the database, also if it is away now."""
        self._quota_offline = policy
        if self._was_away:
            self._books.totals_changed(tuple(self.changes.quotas))

    def _note_away(self) -> None:
        """Have processes know how far accounts may go, if that has changed for all of them."""
        if self.is_away != self._was_away:
            self._was_away = self.is_away
            self._books.totals_changed(tuple(self.changes.quotas))

    # --- what is to be reported ---

    def used(self, account_ids: Iterable[str]) -> None:
        """Something new was counted of these."""
        for each in account_ids:
            if each in self.changes.quotas:
                self._used[each] = self._loop.now

    def ask(self, usages: Mapping[str, AccountUsage]) -> None:
        """Processes ask for these accounts: more is leased of those that have used half of it, or have none."""
        quotas = self.changes.quotas
        short = [each for each, usage in usages.items() if each in quotas and self.changes.is_short(each, usage)]
        if short:
            self.used(short)
            self._wanted.update(dict.fromkeys(short))
            self._next()

    def refuse(self, why: str) -> None:
        """Report nothing for this reason, which is logged once; empty: report."""
        self._database.refuse(why, has_rest=True)

    def note(self, slot: int) -> None:
        """This node's heartbeat has been at the database, where totals have changed last in this slot."""
        self._news_at, self._changed_in = self._loop.now, slot
        if not self._fails:
            self._connected_at = self._loop.now

    @property
    def _may_have_changed(self) -> bool:
        return self._loop.now - self._news_at >= NEWS_LAST or self._changed_in >= self._whole_until

    def tick(self) -> None:
        """A second has passed, and all is booked that was counted by then."""
        if self.is_cut_off != self._was_cut_off:
            self._was_cut_off = self.is_cut_off
            if self._failure is not None and self._was_cut_off:
                self._errors.error(self._failure, level_of(self._failure))
        self._note_away()
        if self._fails:
            self._fail_resets()
        self._next()

    def reset(self, account_ids: Sequence[str], gone: bool, done: Done) -> None:
        """Count these from zero, on all nodes, once all that was counted here by now is reported.

        `done` gets why it can't be, or None; `gone`: they were removed, and it can be later.
        """
        self._resets.append((account_ids, gone, done))
        self._next()

    def _next(self) -> None:
        if self._busy or self._closed or (self._fails and not self._database.is_available):
            return
        try:
            self._begin_next()
        except sqlite3.Error as error:
            self._errors.error(error)

    def _begin_next(self) -> None:
        idle = [each for each, at in self._used.items() if self._loop.now - at > GIVEN_BACK_AFTER]
        prepared = self.changes.prepared(tuple(self._wanted), idle)
        if prepared is not None:
            ledger, warning = self.changes.ledger, self._ledger.notices.percent / 100
            self._do(
                lambda: self._table.report(ledger, prepared.report, warning),
                lambda reply: self._reported(prepared, idle, reply),
            )
        elif self._resets:
            account_ids, gone, done = self._resets.pop(0)
            if gone and not self._may_reset:
                self._reset(account_ids, gone, done, {})
                return
            self._do(lambda: self._table.reset(account_ids), lambda reply: self._reset(account_ids, gone, done, reply))
        elif self._loop.now >= self._read_at and (self._cursor.account or self._may_have_changed):
            until = int((self._database.time() - LATE) / SLOT)
            self._do(lambda: self._table.changed(self._cursor), lambda reply: self._read(reply, until))

    def _do(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._busy = True

        def run() -> Any:
            try:
                return work()
            except DatabaseError as error:
                return error

        def ended(result: Any) -> None:
            self._busy = False
            if self._closed:
                return
            is_first = not self._fails
            if result is None or isinstance(result, DatabaseError):
                self._fails, self._failure = True, result or RuntimeError("it failed")
                if self.is_cut_off:  # else it ends soon, by the next collector or since this machine leaves the fleet
                    self._errors.error(self._failure, level_of(self._failure))
            else:
                self._fails, self._failure, self._connected_at = False, None, self._loop.now
                self._errors.recovered()
            done(result)
            self._note_away()
            if self._fails and is_first:  # of a connection that has ended, a lock that was not free
                self._loop.call_soon(self._next)

        self._threads.submit(run, ended)

    # --- what comes back ---

    def _reported(self, prepared: PreparedReport, idle: Sequence[str], reply: Any) -> None:
        if not isinstance(reply, ReportReply):
            return

        def take() -> None:
            if reply.totals is None:
                self.changes.rewind(reply.number)
                self._cursor, self._whole_until = TotalsCursor(0, ""), 0
            elif not prepared.is_greeting:
                self.changes.acknowledge(prepared, reply.nodes)
            if prepared.is_greeting:
                self.changes.greeted(reply.number)

        if self._books.change(take) is None and reply.totals is not None:
            self._is_behind = not prepared.is_all
            for each in idle:
                self._used.pop(each, None)
            totals = [each for each in reply.totals if each.account in prepared.sums]
            totals.sort(key=lambda each: each.account not in self._wanted)  # processes wait for those
            for each in prepared.sums:
                self._wanted.pop(each, None)
            self._take_some(totals, prepared.sums, idle)

    def _read(self, result: Any, until: int) -> None:
        if not isinstance(result, tuple):
            return
        totals, cursor = result
        if cursor.account == "":
            self._read_at, self._whole_until = self._loop.now + READ_EACH, until
        self._cursor = cursor
        unreported = self.changes.unreported_accounts()
        self._take_some([each for each in totals if each.account not in unreported], {}, ())

    def _take_some(
        self, totals: Sequence[FleetTotal], sums: Mapping[str, Sequence[float]], idle: Sequence[str]
    ) -> None:
        some, others = totals[:TAKEN_AT_ONCE], totals[TAKEN_AT_ONCE:]

        def take() -> None:
            for each in some:
                self.changes.take(each, sums.get(each.account))
            self.changes.released(each.account for each in some if each.account in idle)

        if self._books.change(take) is None:
            self._books.totals_changed([each.account for each in some])
        self._busy = bool(others) and not self._closed
        if self._busy:
            self._loop.call_soon(lambda: self._take_some(others, sums, idle))
        else:
            self._next_soon()

    def _next_soon(self) -> None:
        """Without waiting for the next second, if something is urgent."""
        if self._wanted or self._resets or self._is_behind or self._cursor.account:
            self._loop.call_soon(self._next)

    def _reset(self, account_ids: Sequence[str], gone: bool, done: Done, reply: Any) -> None:
        if not isinstance(reply, dict):
            if gone:
                self._resets.append((account_ids, gone, done))
            else:
                done(str(reply))
            return

        def begin() -> None:
            (self._ledger.forget if gone else self._ledger.reset)(account_ids)
            self.changes.begin_generations(reply)

        error = self._books.change(begin)
        if error is None:
            self._books.totals_changed(account_ids)
        done(error)
        self._next_soon()

    def _fail_resets(self) -> None:
        failed = [each for each in self._resets if not each[1]]
        self._resets = [each for each in self._resets if each[1]]
        for _, _, done in failed:
            done("the fleet's database does not respond")
