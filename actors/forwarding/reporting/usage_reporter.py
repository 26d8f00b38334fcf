"""Reports the usage of accounts to the metrics collector, and takes the totals of all processes from its replies.

A second after usage has changed this process reports what it has counted; the reply has the total over all processes
of the proxy: those before it, and one that still drains. While the collector is unreachable traffic continues with the
last totals, and the usage is reported later. Unchanged usage is not reported, but for a few times after the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from actors.bus.loop import Loop, Timer
from actors.bus.mailbox import Mailbox
from actors.bus.messages.accounts import AccountUsage, ReportUsage, Usage
from actors.bus.messages.common import METRICS
from actors.forwarding.limits.accounts import Account
from actors.forwarding.limits.limits import Limits

PERIOD = 1.0
REPLY_TIMEOUT = 3.0
REQUESTED_AGAIN = (1.5, 5.0, 12.0)
"""Seconds after the start at which a process requests the final count of its predecessor."""

OnAcknowledged = Callable[[bool], None]
"""Called with whether the collector has acknowledged the report."""


class UsageReporter:
    """Reports the accounts of `limits`."""

    def __init__(self, loop: Loop, mailbox: Mailbox, limits: Limits, instance: int) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._limits = limits
        self._instance = instance
        self._proxy_id = ""
        self._timer: Timer | None = None
        self._reporting = False
        limits.on_used = self._report_later

    def configured(self, proxy_id: str) -> None:
        """Report accounts that are new or have changed."""
        if not self._proxy_id and self._limits.accounts:
            self._proxy_id = proxy_id
            for delay in REQUESTED_AGAIN:
                self._loop.call_later(delay, lambda: self.settle(lambda _acknowledged: None))
        if self._changed():
            self._report_later()

    def settle(self, acknowledged: OnAcknowledged, timeout: float = REPLY_TIMEOUT, final: bool = False) -> None:
        """Report all accounts now; `final`: for the last time."""
        self._report(self._limits.accounts.values(), acknowledged, timeout, final)

    @property
    def has_totals(self) -> bool:
        """Whether the earlier usage of every account with a quota is known."""
        return all(
            account.last_acknowledged is not None or not account.spec.quota
            for account in self._limits.accounts.values()
        )

    def _report_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(PERIOD, self._report_changed)

    def _changed(self) -> list[Account]:
        return [account for account in self._limits.accounts.values() if account.usage() != account.last_acknowledged]

    def _report_changed(self) -> None:
        self._timer = None
        if self._reporting:
            self._report_later()
            return
        changed = self._changed()
        if changed:
            self._reporting = True
            self._report(changed, self._on_reply)

    def _on_reply(self, acknowledged: bool) -> None:
        self._reporting = False
        if not acknowledged or self._changed():
            self._report_later()

    def _report(
        self,
        accounts: Iterable[Account],
        acknowledged: OnAcknowledged,
        timeout: float = REPLY_TIMEOUT,
        final: bool = False,
    ) -> None:
        by_id = {account.spec.id: account for account in accounts}
        reports = {each: account.take_report() for each, account in by_id.items()}

        def on_reply(reply: Any) -> None:
            if isinstance(reply, Usage):
                _apply_totals(by_id, reports, reply.accounts)
            acknowledged(isinstance(reply, Usage))

        self._mailbox.ask(METRICS, ReportUsage(self._proxy_id, self._instance, reports, final), on_reply, timeout)


def _apply_totals(by_id: dict[str, Account], reports: dict[str, AccountUsage], totals: dict[str, AccountUsage]) -> None:
    for each, total in totals.items():
        if each in by_id:
            by_id[each].apply_total(reports[each], total)
