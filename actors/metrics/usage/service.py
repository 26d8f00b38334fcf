"""The metrics collector's part for the usage of accounts: it books what processes count, answers queries, and resets.

Each second it reads which lines of the table (`actors.state.usage`) have something new, and books them, some in each
turn of the loop. Then it writes the totals of the accounts that have a quota, for all processes, and frees the lines
that are final. Who asks for an account gets what all processes have counted of it by now.

In a fleet (`follow`) the totals are of all nodes, and a reporter (`actors.metrics.usage.reporter`) has the fleet's
database know what is counted here.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.bus.mailbox import Reply
from actors.bus.messages.accounts import (
    DATABASE,
    DropAccountUsage,
    OpenOfAccounts,
    QueryOpen,
    QueryReached,
    QueryUsage,
    Reached,
    ResetUsage,
    UsageOfAccounts,
)
from actors.bus.messages.cluster import NoteFleet
from actors.bus.messages.common import Done, Failed
from actors.bus.messages.events import Event
from actors.log_lines import ThrottledLog
from actors.metrics.usage.account_usage import LineName, UsageLedger
from actors.state.booked_usage import BookedUsage, CountedLine, open_booked
from actors.state.table import FOREVER
from actors.state.usage import period_word
from actors.thread_pool import ThreadPool
from config.model.subscriptions import load_models

if TYPE_CHECKING:
    from actors.cluster.database import Database
    from actors.metrics.usage.limits_reporter import LimitsReporter
    from actors.metrics.usage.reporter import UsageReporter

log = logging.getLogger(__name__)

PERIOD = 1.0
LINES_AT_ONCE = 64
"""Lines that are booked in one turn: a few milliseconds."""
PRUNE_PERIOD = 3600.0
PUBLISHED_AFTER = 2.0
"""Seconds after the start at which events can be published: before, the connection may not be there."""

UsageMessage = QueryUsage | QueryReached | QueryOpen | ResetUsage | DropAccountUsage


class UsageService:
    """Books, and handles messages. `folder` is the ledger's, `state` that of the table (`RunDir.state`)."""

    def __init__(
        self,
        loop: Loop,
        folder: Path,
        state: Path,
        publish: Callable[[Event], None],
        on_first_use: Callable[[], None] = lambda: None,
        on_use: Callable[[str, Sequence[int]], None] = lambda _account_id, _figures: None,
    ) -> None:
        """`on_first_use` is called when `is_used` becomes true, before anything is booked; `on_use` by the ledger."""
        self._loop = loop
        self._state = state
        self._ledger = UsageLedger(folder, on_use=on_use)
        self._publish = publish
        self._publishes_at = loop.now + PUBLISHED_AFTER
        self._loading: ThreadPool | None = None
        self._can_publish = False
        self._errors = ThrottledLog(log, "cannot save the usage of accounts")
        self._table_errors = ThrottledLog(log, "cannot read what processes count of accounts")
        self._table: BookedUsage | None = None
        self._changed: list[int] = []
        """Lines that are still to be booked."""
        self._lately: list[int] = []
        """Lines that had something new in this period."""
        self._unwritten = set[str]()
        """Accounts that begin at zero, which processes don't know yet."""
        self._freed: list[LineName] = []
        """Lines that are free, of which the ledger still has what is booked."""
        self._reporter: UsageReporter | None = None
        self._quota_offline = "share"
        self._limits: LimitsReporter | None = None
        self._database: Database | None = None
        """That of the fleet, whose time is that of periods."""
        self._to_write: list[str] = []
        """Accounts that are used on other nodes as well, whose totals processes don't know yet."""
        self._on_first_use = on_first_use
        self.is_used = not self._ledger.is_empty
        """Whether any account was used, or is reset, here or, as far as that is known, on another node."""
        loop.call_soon(self._book_changed)
        loop.call_every(PERIOD, self._book_changed)
        loop.call_later(PUBLISHED_AFTER, self._publish_notices)  # what the collector before had not published
        loop.call_every(PRUNE_PERIOD, self._prune)

    def receive(self, message: UsageMessage, reply: Reply) -> None:
        """Handle a message."""
        if isinstance(message, (QueryUsage, QueryReached)):
            self._query(message, reply)
        elif isinstance(message, QueryOpen):
            table = self._opened()
            reply(OpenOfAccounts({} if table is None else table.open_connections(message.beginning)))
        else:
            self._receive_reset(message, reply)

    def _note_use(self) -> None:
        if not self.is_used:
            self.is_used = True
            self._on_first_use()

    def note_fleet(self, news: NoteFleet) -> None:
        """See `NoteFleet`."""
        if news.slot or news.limits:
            self._note_use()
        if self._reporter is not None and self._limits is not None:
            self._reporter.refuse(news.refused)
            if not news.refused:
                self._reporter.note(news.slot)
                self._limits.note(news.limits)

    def _receive_reset(self, message: ResetUsage | DropAccountUsage, reply: Reply) -> None:
        def done(error: str | None) -> None:
            reply(Done() if error is None else Failed(error, None if self._reporter is None else DATABASE))

        self._note_use()
        gone = isinstance(message, DropAccountUsage)
        if self._reporter is None:
            done(self._reset(message.account_ids, gone))
        elif isinstance(message, ResetUsage) and message.by_change:
            done(None)  # each kind of period has its own sums there, and each node gets the change
        else:
            self._book_accounts(message.account_ids)
            self._reporter.reset(message.account_ids, gone, done)

    # --- in a fleet ---

    def follow(self, database: Database, node: str, is_edge: bool = False) -> None:
        """Count for all nodes from now on; `node` is the id of this one. Raises `sqlite3.Error`."""
        from actors.metrics.usage.limits_reporter import LimitsReporter
        from actors.metrics.usage.reporter import UsageReporter

        self.leave()
        table = self._opened()
        if table is not None:
            database.assume_ahead(table.ahead)  # what the collector before knew
        self._database = database
        self._reporter = reporter = UsageReporter(
            self._loop, self._ledger, database, node, self, self._quota_offline, may_reset=not is_edge
        )
        self._limits = LimitsReporter(self._loop, self._state, database, node, lambda: reporter.changes.nodes)
        if table is not None:
            table.all_again()

    def leave(self) -> None:
        """Count for this machine alone."""
        if self._reporter is not None:
            reporter, self._reporter, self._database = self._reporter, None, None
            reporter.close()
            self.totals_changed(reporter.changes.quotas)
        if self._limits is not None:
            self._limits.close()
            self._limits.forget()
            self._limits = None

    def change(self, change: Callable[[], object]) -> str | None:
        """Make changes of the ledger in one transaction; why it failed, or None."""
        return self._try(change)

    def totals_changed(self, account_ids: Iterable[str]) -> None:
        """Let processes know what these accounts have used, and how far they may go; of many some in each turn."""
        waits = bool(self._to_write)
        self._to_write += account_ids
        if not waits:
            self._write_some()
        self._publish_notices()

    def _write_some(self) -> None:
        table = self._opened()
        some, self._to_write = self._to_write[:LINES_AT_ONCE], self._to_write[LINES_AT_ONCE:]
        if table is not None:
            for each in some:
                if table.has_total(each):
                    self._write_total(table, each)
        if self._to_write:
            self._loop.call_soon(self._write_some)

    def set_warning(self, percent: float) -> None:
        """Warn at this part of a quota; 0: never."""
        self._ledger.notices.percent = percent

    def set_quota_offline(self, policy: str) -> None:
        """What accounts may use of their quotas while this node is cut off from the fleet's database."""
        self._quota_offline = policy
        if self._reporter is not None:
            self._reporter.set_quota_offline(policy)

    def close(self) -> None:
        """Book what was counted, and close the files. What can't be booked now the next collector finds."""
        reporter, self._reporter = self._reporter, None
        if self._loading is not None:
            self._loading.close()
            self._loading = None
        if self._limits is not None:
            self._limits.close()
        while self._changed:
            self._book_some()
        table = self._opened()
        if table is not None:
            # of a line that has changed lately, what was counted last may not be noted yet
            self._changed = list(dict.fromkeys((*self._lately, *table.changed())))
            while self._changed:
                self._book_some()
            table.close()
        if reporter is not None:
            reporter.close()
        self._ledger.close()

    def _prune(self) -> None:
        self._try(self._ledger.prune)

    def _query(self, message: QueryUsage | QueryReached, reply: Reply) -> None:
        try:
            if isinstance(message, QueryUsage):
                lines = self._book_accounts(message.periods)
                found = self._ledger.usage(message.periods, lines)
                reply(UsageOfAccounts(found))
                if self._reporter is not None:
                    self._reporter.ask({each: found[each].usage for each in lines if each in found})
            else:
                reply(Reached(tuple(self._ledger.reached(message.limit))))
        except sqlite3.Error as error:
            log.error("cannot read the usage of accounts: %s", error)
            reply(Failed(str(error)))

    def _reset(self, account_ids: Sequence[str], gone: bool) -> str | None:
        """Book what was counted by now, and begin at zero; `gone`: these were removed. Why it failed, or None."""
        table = self._opened()
        lines = [] if table is None else [line for each in account_ids for line in table.lines_of(each)]

        def reset() -> None:
            for line in lines:
                self._ledger.book(line)
            (self._ledger.forget if gone else self._ledger.reset)(account_ids)

        error = self._try(reset)
        if table is not None and error is None:
            self._write_totals(table, account_ids, lines)
        return error

    # --- booking ---

    def _opened(self) -> BookedUsage | None:
        """The table; None when it can't be opened now."""
        if self._table is None:
            try:
                booked = self._ledger.lines()
                table = open_booked(self._state)
                if table is not None:
                    self._forget_lines_without(table, booked)
                    self._table = table
            except (OSError, sqlite3.Error) as error:
                self._table_errors.error(error)
        return self._table

    def _forget_lines_without(self, table: BookedUsage, booked: Iterable[LineName]) -> None:
        """What the collector before has freed last, or what was in another table."""
        there = table.names()
        self._freed += [each for each in booked if each not in there]
        table.free_totals()

    def _book_changed(self) -> None:
        """Find what is new, unless some of that is still to be booked."""
        table = self._opened()
        if table is None and self._reporter is not None:
            self._reporter.tick()
        if table is not None:
            table.set_ahead(0.0 if self._database is None else self._database.clock_offset)
        if table is not None and not self._changed:
            self._unwritten = {each for each in self._unwritten if not self._write_total(table, each)}
            self._changed = self._lately = table.changed()
            self._book_some()

    def _book_some(self) -> None:
        table = self._opened()
        some, self._changed = self._changed[:LINES_AT_ONCE], self._changed[LINES_AT_ONCE:]
        if table is not None and some:
            lines = [each for line in some if (each := table.read(line)) is not None]
            self._book(table, lines)
            if self._reporter is not None:
                self._reporter.used(each.account_id for each in lines)
        if self._changed:
            self._loop.call_soon(self._book_some)
        elif self._reporter is not None:
            self._reporter.tick()

    def _book_accounts(self, account_ids: Iterable[str]) -> dict[str, list[CountedLine]]:
        """Book what was counted of these accounts by now; their lines, by id."""
        table = self._opened()
        if table is None:
            return {}
        lines = {each: found for each in account_ids if (found := table.lines_of(each))}
        self._book(table, [line for found in lines.values() for line in found], self._ledger.unbooked(lines))
        return lines

    def _book(
        self, table: BookedUsage, lines: Sequence[CountedLine], unbooked: Iterable[CountedLine] | None = None
    ) -> None:
        """Book those of these lines that aren't; None: all may be such. Let processes know all totals."""
        if not lines and not self._freed:
            return
        self._note_use()
        if self._reporter is not None:
            for each in lines:
                self._reporter.changes.saw(each)
        freed = tuple(self._freed)

        def book() -> None:
            for line in lines if unbooked is None else unbooked:
                self._ledger.book(line)
            self._ledger.forget_lines(freed)

        if self._try(book) is not None:
            table.all_again()
            self._changed = []  # in the next period: it is likely to fail for some time
            return
        del self._freed[: len(freed)]
        self._write_totals(table, (), lines)
        self._publish_notices()

    def _write_totals(self, table: BookedUsage, account_ids: Iterable[str], lines: Sequence[CountedLine]) -> None:
        """Let processes know what these accounts have used, and free the lines that are final."""
        final = [each for each in lines if each.final]
        with_quota, written = {each.account_id for each in lines if each.quota}, set[str]()
        for each in {*account_ids, *with_quota, *(each.account_id for each in final)}:
            if (each not in with_quota and not table.has_total(each)) or self._write_total(table, each):
                written.add(each)
        self._unwritten.update({*account_ids} - written)
        free = [each for each in final if each.account_id in written]
        table.free_booked(free)
        self._freed += [(each.instance, each.serial) for each in free]
        for each in {line.account_id for line in free}:
            table.free_total(each)

    def _write_total(self, table: BookedUsage, account_id: str) -> bool:
        try:
            total = self._ledger.total(account_id)
            if total is None:
                return True
            usage = total.usage
            may_use, no_more = FOREVER, False
            if self._reporter is not None:
                may_use, no_more = self._reporter.may_use(account_id, usage), self._reporter.is_away
        except sqlite3.Error as error:
            self._errors.error(error)
            return False
        period = period_word(usage.period, usage.since)
        return table.write_total(account_id, period, usage.bytes_in, usage.bytes_out, total.booked, may_use, no_more)

    # --- events ---

    def _publish_notices(self) -> None:
        """Publish the events of quotas, and delete those that are published."""
        if self._loop.now < self._publishes_at:
            return
        try:
            events = self._ledger.notices.pending()
        except sqlite3.Error as error:
            self._errors.error(error)
            return
        if events and not self._can_publish:
            self._load()
            return
        for event in events:
            self._publish(event)
        if events:
            self._try(lambda: self._ledger.notices.published(events))

    def _load(self) -> None:
        """Load what events are checked by, off the loop: processes wait for it to let them use more."""
        if self._loading is None:
            self._loading = ThreadPool(self._loop, 1)
            self._loading.submit(load_models, self._loaded)

    def _loaded(self, _result: object) -> None:
        if self._loading is not None:
            self._loading.close()
            self._loading = None
            self._can_publish = True
            self._publish_notices()

    def _try(self, change: Callable[[], object]) -> str | None:
        """Make changes in one transaction; why it failed, or None."""
        try:
            with self._ledger.changes():
                change()
        except sqlite3.Error as error:
            self._errors.error(error)
            return str(error)
        self._errors.recovered()
        return None
