"""The metrics collector's part for the usage of accounts: reports, files of dead processes, resets.

Reports that arrive in one turn of the loop are stored together; each gets its reply when they are. An account that has
used half of what was left of its quota, or all of it, is pushed to the processes that use it.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.bus.loop import Loop
from actors.bus.mailbox import Mailbox, Reply, address_of
from actors.bus.messages.accounts import (
    CollectUsage,
    DropAccountUsage,
    QueryReached,
    QueryUsage,
    Reached,
    ReportUsage,
    ResetUsage,
    Totals,
    UsageOfAccounts,
)
from actors.bus.messages.common import Done, Failed, forwarding_name
from actors.bus.messages.events import Event
from actors.log_lines import ThrottledLog
from actors.metrics.account_usage import Process, UsageLedger
from actors.usage_file import files, is_held, read

log = logging.getLogger(__name__)

FILES_PERIOD = 5.0
"""Seconds between two looks for files of dead processes."""
PRUNE_PERIOD = 3600.0
PUBLISHED_AFTER = 2.0
"""Seconds after the start at which events can be published: before, the connection may not be there."""
PEER_TIMEOUT = 1.0
"""Seconds that a forwarding actor may take to report for a reset."""

UsageMessage = ReportUsage | QueryUsage | QueryReached | ResetUsage | DropAccountUsage


class UsageService:
    """Handles messages about usage. `folder` is the ledger's, `files_folder` that of the files of processes."""

    def __init__(
        self, loop: Loop, mailbox: Mailbox, folder: Path, files_folder: Path, publish: Callable[[Event], None]
    ) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._files = files_folder
        self._ledger = UsageLedger(folder)
        self._publish = publish
        self._publishes_at = loop.now + PUBLISHED_AFTER
        self._errors = ThrottledLog(log, "cannot save the usage of accounts")
        self._waiting: list[tuple[ReportUsage, Reply]] = []
        self._processes: set[Process] = set()
        self._take_files()
        loop.call_every(FILES_PERIOD, self._take_files)
        loop.call_later(PUBLISHED_AFTER, self._publish_notices)  # what the collector before had not published
        loop.call_every(PRUNE_PERIOD, self._prune)

    def receive(self, message: UsageMessage, reply: Reply) -> None:
        """Handle a message."""
        if isinstance(message, ReportUsage):
            if not self._waiting:
                self._loop.call_soon(self._store_reports)
            self._waiting.append((message, reply))
        elif isinstance(message, (QueryUsage, QueryReached)):
            self._query(message, reply)
        elif isinstance(message, ResetUsage):
            self._reset(message.account_ids, reply)
        else:
            error = self._try(lambda: self._ledger.forget(message.account_ids))
            reply(Done() if error is None else Failed(error))

    def close(self) -> None:
        """Store what has arrived, and close the file."""
        self._store_reports()
        self._ledger.close()

    def _prune(self) -> None:
        self._try(self._ledger.prune)

    def _query(self, message: QueryUsage | QueryReached, reply: Reply) -> None:
        try:
            if isinstance(message, QueryUsage):
                reply(UsageOfAccounts(self._ledger.usage(message.periods)))
            else:
                reply(Reached(tuple(self._ledger.reached(message.limit))))
        except sqlite3.Error as error:
            log.error("cannot read the usage of accounts: %s", error)
            reply(Failed(str(error)))

    # --- reports ---

    def _store_reports(self) -> None:
        waiting, self._waiting = self._waiting, []
        for proxy_id in {report.proxy_id for report, _ in waiting if self._is_new(report)}:
            self._take_files(proxy_id)
        replies: list[Totals] = []

        def store() -> None:
            replies.extend(Totals(self._ledger.update(report)) for report, _ in waiting)

        error = self._try(store) if waiting else None
        for place, (_, reply) in enumerate(waiting):
            reply(replies[place] if error is None else Failed(error))
        self._push()
        self._publish_notices()

    def set_warning(self, percent: float) -> None:
        """Warn at this part of a quota; 0: never."""
        self._ledger.notices.percent = percent

    def _publish_notices(self) -> None:
        """Publish the events of quotas, and delete those that are published."""
        if self._loop.now < self._publishes_at:
            return
        try:
            events = self._ledger.notices.pending()
        except sqlite3.Error as error:
            self._errors.error(error)
            return
        for event in events:
            self._publish(event)
        if events:
            self._try(lambda: self._ledger.notices.published(events))

    def _is_new(self, report: ReportUsage) -> bool:
        """Whether it is the first of its process, whose predecessor may have died."""
        process = (report.proxy_id, report.instance)
        new = process not in self._processes
        self._processes.add(process)
        return new

    def _push(self) -> None:
        crossings, self._ledger.crossings = self._ledger.crossings, []
        if not crossings:
            return
        try:
            pushes = self._ledger.pushes({each.account_id for each in crossings})
        except sqlite3.Error as error:
            self._errors.error(error)
            return
        for process, push in pushes.items():
            self._mailbox.tell(_address(process), push)

    # --- files ---

    def _take_files(self, proxy_id: str | None = None) -> None:
        """Take what processes had counted that are gone, and delete their files."""
        for path, of_proxy, instance in files(self._files, proxy_id):
            try:
                if not is_held(path):
                    self._take_file(path, (of_proxy, instance))
            except OSError as error:
                self._errors.error(error)

    def _take_file(self, path: Path, process: Process) -> None:
        records = list(read(path))
        if self._try(lambda: self._ledger.take_file(process, records)) is None:
            self._processes.discard(process)
            os.unlink(path)

    # --- resets ---

    def _reset(self, account_ids: tuple[str, ...], reply: Reply) -> None:
        """Have all processes report, set the usage to zero, and reply when they know it."""
        try:
            holders = self._ledger.holders(account_ids)
        except sqlite3.Error as error:
            reply(Failed(str(error)))
            return
        reports: list[ReportUsage] = []

        def reset() -> None:
            for report in reports:
                self._ledger.update(report)
            self._ledger.reset(account_ids)

        def stored() -> None:
            error = self._try(reset)
            if error is not None:
                reply(Failed(error))
            else:
                self._announce_reset(account_ids, reply)

        ask_all = {process: CollectUsage(tuple(ids)) for process, ids in holders.items()}
        self._ask_all(ask_all, lambda each: reports.append(each) if isinstance(each, ReportUsage) else None, stored)

    def _announce_reset(self, account_ids: tuple[str, ...], reply: Reply) -> None:
        try:
            pushes = self._ledger.pushes(account_ids)
        except sqlite3.Error as error:
            reply(Failed(str(error)))
            return
        self._ask_all(pushes, lambda _reply: None, lambda: reply(Done()))

    def _ask_all(
        self, messages: dict[Process, Any], on_reply: Callable[[Any], None], on_end: Callable[[], None]
    ) -> None:
        """Send each process its message; `on_end` is called when all have replied or their time is up."""
        missing = len(messages)

        def replied(message: Any) -> None:
            nonlocal missing
            on_reply(message)
            missing -= 1
            if not missing:
                on_end()

        for process, message in messages.items():
            self._mailbox.ask(_address(process), message, replied, PEER_TIMEOUT)
        if not messages:
            on_end()

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


def _address(process: Process) -> str:
    proxy_id, instance = process
    return address_of(forwarding_name(proxy_id), instance)
