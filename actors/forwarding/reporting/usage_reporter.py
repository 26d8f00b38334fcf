"""The conversation with the metrics collector about what accounts have used.

A second after something was used this process says what it has counted, and hears what all processes of the proxy have:
those before it, and one that still drains. While the collector is away traffic goes on with what is known, and is told
later. As long as nobody uses an account nothing is said, but for a few times after the start.
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
ANSWER_TIMEOUT = 3.0
ASKED_AGAIN = (1.5, 5.0, 12.0)
"""Seconds after the start at which a process asks what the one before it has counted in the end."""

OnHeard = Callable[[bool], None]
"""Called with whether the collector has answered."""


class UsageReporter:
    """Tells of the accounts of `limits`."""

    def __init__(self, loop: Loop, mailbox: Mailbox, limits: Limits, instance: int) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._limits = limits
        self._instance = instance
        self._proxy_id = ""
        self._timer: Timer | None = None
        self._asking = False
        limits.on_used = self._used

    def configured(self, proxy_id: str) -> None:
        """There may be other accounts than before."""
        if not self._proxy_id and self._limits.accounts:
            self._proxy_id = proxy_id
            for delay in ASKED_AGAIN:
                self._loop.call_later(delay, lambda: self.settle(_nothing))
        if self._changed():
            self._used()

    def settle(self, heard: OnHeard, timeout: float = ANSWER_TIMEOUT, final: bool = False) -> None:
        """Tell of all accounts now; `final`: for the last time."""
        self._tell(self._limits.accounts.values(), heard, timeout, final)

    @property
    def knows_all(self) -> bool:
        """Is there no account whose quota waits for what was used before?"""
        return all(account.told is not None or not account.spec.quota for account in self._limits.accounts.values())

    def _used(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(PERIOD, self._look)

    def _changed(self) -> list[Account]:
        return [account for account in self._limits.accounts.values() if account.word() != account.told]

    def _look(self) -> None:
        self._timer = None
        if self._asking:
            self._used()
            return
        changed = self._changed()
        if changed:
            self._asking = True
            self._tell(changed, self._answered)

    def _answered(self, heard: bool) -> None:
        self._asking = False
        if not heard or self._changed():
            self._used()

    def _tell(
        self, accounts: Iterable[Account], heard: OnHeard, timeout: float = ANSWER_TIMEOUT, final: bool = False
    ) -> None:
        by_id = {account.spec.id: account for account in accounts}
        words = {each: account.said() for each, account in by_id.items()}

        def answered(reply: Any) -> None:
            if isinstance(reply, Usage):
                _learn(by_id, words, reply.accounts)
            heard(isinstance(reply, Usage))

        self._mailbox.ask(METRICS, ReportUsage(self._proxy_id, self._instance, words, final), answered, timeout)


def _learn(by_id: dict[str, Account], words: dict[str, AccountUsage], totals: dict[str, AccountUsage]) -> None:
    for each, total in totals.items():
        if each in by_id:
            by_id[each].learn(words[each], total)


def _nothing(_heard: bool) -> None:
    """The next time is soon."""
