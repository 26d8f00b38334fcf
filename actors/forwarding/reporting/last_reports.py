"""What a forwarding actor reports when its last client has gone: counters, usage and records."""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Loop
from actors.bus.mailbox import Mailbox
from actors.bus.messages.common import METRICS
from actors.bus.messages.metrics import Counters
from actors.bus.records import RecordSender
from actors.forwarding.reporting.usage_reporter import RETRY, UsageReporter

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
