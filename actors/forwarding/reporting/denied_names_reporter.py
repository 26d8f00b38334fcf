"""Reports to the metrics collector which tunnels were refused for the name in their TLS handshake, and whose they were.

The collector makes one event of the refusals of all processes (`actors.metrics.denied_names`). The first is reported at
once, later ones once a second; while the collector is away they wait, within bounds. They are counted and recorded
whatever becomes of the report.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from actors.bus.loop import Loop, Timer
from actors.bus.mailbox import Mailbox
from actors.bus.messages.accounts import DeniedNames, RefusedTunnel, ReportDeniedNames
from actors.bus.messages.common import METRICS, Done
from actors.forwarding.limits.accounts import Account
from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.failures import kind_of_denied_name

PERIOD: Final = 1.0
REPLY_TIMEOUT: Final = 3.0
USERS_MAX: Final = 1_000
"""Users that wait; refusals of others are left out of the event."""


class DeniedNamesReporter:
    """Collects refusals, and reports them. `accounts` are those of the proxy, by user name."""

    def __init__(self, loop: Loop, mailbox: Mailbox, accounts: Mapping[str, Account]) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._accounts = accounts
        self._proxy_id = ""
        self._waiting: dict[str, DeniedNames] = {}
        self._timer: Timer | None = None

    def note(self, proxy_id: str, report: Report) -> None:
        """A tunnel of the proxy was refused; `report` is that of its record."""
        self._proxy_id = proxy_id
        account = self._accounts.get(report.user)
        tunnel = RefusedTunnel(report.url, report.tls_name, kind_of_denied_name(report.detail))
        self._add(DeniedNames("" if account is None else account.spec.id, report.user, 1, time.time(), (tunnel,)))
        self._send_within(0.0)

    def flush(self) -> None:
        """Send what waits: this process is about to end."""
        if self._waiting:
            self._mailbox.tell(METRICS, self._taken())

    def _send_within(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._send)

    def _send(self) -> None:
        """Send one message, and the next one a second later at the earliest."""
        self._timer = None
        if not self._waiting:
            return
        self._send_within(PERIOD)
        message = self._taken()

        def on_reply(reply: Any) -> None:
            if not isinstance(reply, Done):
                for each in message.users:
                    self._add(each)
                self._send_within(PERIOD)

        self._mailbox.ask(METRICS, message, on_reply, REPLY_TIMEOUT)

    def _taken(self) -> ReportDeniedNames:
        message = ReportDeniedNames(self._proxy_id, tuple(self._waiting.values()))
        self._waiting = {}
        return message

    def _add(self, denied: DeniedNames) -> None:
        before = self._waiting.get(denied.username)
        if before is not None:
            self._waiting[denied.username] = before.joined(denied)
        elif len(self._waiting) < USERS_MAX:
            self._waiting[denied.username] = denied
