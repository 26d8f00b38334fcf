"""Reports the usage of accounts to the metrics collector, and takes the totals over all proxies from its replies.

A second after usage has changed this process reports what it has counted, and at once when an account near its quota
has used much since its last report. While the collector is unreachable traffic continues with the last totals, and the
usage is reported later. Unchanged usage is not reported, but for a few times after the start.

A message has a part of the accounts, and the next one is sent when the collector has replied: with ten thousand in use
neither of the two processes stands still for it. Those for whose report a connection waits come first.

When its last client has gone, an actor reports all that is left: counters, usage and records.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from actors.bus.loop import Loop, Timer
from actors.bus.mailbox import Mailbox
from actors.bus.messages.accounts import AccountReport, ReportUsage, Totals
from actors.bus.messages.common import METRICS
from actors.bus.messages.metrics import Counters
from actors.bus.records import RecordSender
from actors.forwarding.limits.limits import LimitsOfProxy
from actors.forwarding.limits.usage import AccountCounter

PERIOD = 1.0
REPLY_TIMEOUT = 3.0
RETRY = 0.05
"""Seconds until a report that must arrive is tried again."""
REQUESTED_AGAIN = (1.5, 5.0, 12.0)
"""Seconds after the start at which a process requests the final count of its predecessor."""
TIME_PERIOD = 60.0
"""Seconds after which the time of open connections is reported though nothing else has changed."""

ACCOUNTS_MAX = 64
"""Accounts in one message: a millisecond or three to make it, and as long to take the reply."""

OnAcknowledged = Callable[[bool], None]
"""Called with whether the collector has acknowledged the report."""


class UsageReporter:
    """Reports the accounts of `limits`."""

    def __init__(self, loop: Loop, mailbox: Mailbox, limits: LimitsOfProxy, instance: int) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._counters = limits.usage
        self._instance = instance
        self._proxy_id = ""
        self._has_accounts = self._notes_time = False
        self._timer: Timer | None = None
        self._urgent = False
        self._reporting = False
        self._counters.on_changed = self._report_later
        self._counters.on_urgent = self._report_soon

    def configured(self, proxy_id: str) -> None:
        """The accounts may be other ones now."""
        self._proxy_id = proxy_id
        if not self._has_accounts and self._counters.by_id:
            self._has_accounts = True
            for delay in REQUESTED_AGAIN:
                self._loop.call_later(delay, lambda: self.settle(_ignore))

    def settle(self, acknowledged: OnAcknowledged, timeout: float = REPLY_TIMEOUT) -> None:
        """Report all accounts, from now on."""
        self._report(self._counters.take_all(), acknowledged, timeout)

    def collect(self, account_ids: tuple[str, ...]) -> ReportUsage:
        """The report of these accounts, for the collector that has requested it."""
        counters = [self._counters.by_id[each] for each in account_ids if each in self._counters.by_id]
        reports = {each.id: each.take_report() for each in counters}
        for counter in counters:
            counter.reported(True)
            counter.changed()  # whether it is stored the reply to the next report says
        return ReportUsage(self._proxy_id, self._instance, reports)

    @property
    def has_totals(self) -> bool:
        """Whether the earlier usage of every account with a quota is known."""
        return all(each.known or not each.quota for each in self._counters.by_id.values())

    def _report_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(PERIOD, self._report_changed)
        if not self._notes_time:
            self._notes_time = True
            self._loop.call_later(TIME_PERIOD, self._note_time)

    def _report_soon(self) -> None:
        """Report in this turn of the loop, or as soon as the collector has replied to the report before."""
        if not self._urgent:
            self._urgent = True
            if not self._reporting:
                self._loop.call_soon(self._report_changed)

    def _report_changed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._proxy_id:
            self._urgent = False
            return  # not configured yet, and then everything is reported
        if self._reporting:
            self._report_later()
            return
        self._urgent = False
        changed = self._counters.take_changed()
        if changed:
            self._reporting = True
            self._report(changed, self._on_reply)

    def _on_reply(self, acknowledged: bool) -> None:
        self._reporting = False
        if self._urgent and acknowledged:
            self._report_changed()
        elif self._counters.any_changed:
            self._urgent = False
            self._report_later()

    def _report(
        self, waiting: dict[str, AccountCounter], acknowledged: OnAcknowledged, timeout: float = REPLY_TIMEOUT
    ) -> None:
        """Report those that wait, a message of them after the other, until the collector doesn't acknowledge one."""
        some = self._counters.take_urgent(waiting, ACCOUNTS_MAX)
        some += [waiting.pop(each) for each in tuple(islice(waiting, ACCOUNTS_MAX - len(some)))]

        def on_reply(stored: bool) -> None:
            if stored and waiting:
                self._loop.call_soon(lambda: self._report(waiting, acknowledged, timeout))
                return
            self._counters.put_back(waiting)
            acknowledged(stored)

        self._send(some, on_reply, timeout)

    def _send(self, counters: list[AccountCounter], acknowledged: OnAcknowledged, timeout: float) -> None:
        reports: dict[str, AccountReport] = {each.id: each.take_report() for each in counters}

        def on_reply(reply: Any) -> None:
            stored = isinstance(reply, Totals)
            for counter in counters:
                counter.reported(stored)
            if stored:
                self._counters.apply_totals(reply.accounts)
                self._counters.remove_settled()
            acknowledged(stored)

        with_others = self._counters.sharing is not None
        self._mailbox.ask(METRICS, ReportUsage(self._proxy_id, self._instance, reports, with_others), on_reply, timeout)

    def _note_time(self) -> None:
        self._notes_time = bool(self._counters.by_id)
        if self._notes_time:
            self._loop.call_later(TIME_PERIOD, self._note_time)
            self._counters.note_time()


def _ignore(_acknowledged: bool) -> None:
    """The next report says the same."""


LAST_COUNTERS = 5.0
"""Seconds that the last counters may take to be acknowledged, of a collector that starts, too."""
LAST_RECORDS = 1.0
"""Seconds that the last records may take to be acknowledged."""
CHECKED_EACH = 0.02


class LastReports:
    """Calls `finish` when what was sent has arrived, or has had its time."""

    def __init__(
        self, loop: Loop, mailbox: Mailbox, records: RecordSender, usage: UsageReporter, finish: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._records = records
        self._usage = usage
        self._finish = finish
        self._records_until = 0.0
        self._usage_acknowledged = self._counters_acknowledged = True

    def send(self, counters: Counters | None, has_usage: bool) -> None:
        """Send these counters, the records that wait, and the usage of accounts if there are any."""
        self._records.flush()
        self._records_until = self._loop.now + LAST_RECORDS
        if counters is not None:
            self._counters_acknowledged = False
            self._mailbox.ask(METRICS, counters, self._on_counters, LAST_COUNTERS)
        if has_usage:
            self._usage_acknowledged = False
            self._report_usage()
        self._finish_when_acknowledged()

    def _on_counters(self, _reply: object) -> None:
        self._counters_acknowledged = True  # or there is no collector

    def _report_usage(self) -> None:
        self._usage.settle(self._on_usage, LAST_RECORDS)

    def _on_usage(self, acknowledged: bool) -> None:
        self._usage_acknowledged = acknowledged
        if not acknowledged:
            self._loop.call_later(RETRY, self._report_usage)

    def _finish_when_acknowledged(self) -> None:
        settled = (self._usage_acknowledged and self._records.settled) or self._loop.now > self._records_until
        if settled and self._counters_acknowledged:
            self._finish()
        else:
            self._loop.call_later(CHECKED_EACH, self._finish_when_acknowledged)
