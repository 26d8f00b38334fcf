"""The conversation with the metrics collector about what accounts have used.

Once a second this process says what it has counted, and hears what all processes of the proxy have: those before it,
and one that still drains. While the collector is away traffic goes on with what is known, and is told later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from actors.bus.mailbox import Mailbox
from actors.bus.messages import METRICS, AccountUsage, TellUsage, Usage
from actors.forwarding.accounts import Account
from actors.forwarding.limits import Limits

ANSWER_TIMEOUT = 3.0
ALL_EVERY = 5


class UsageTeller:
    """Tells of the accounts of `limits`."""

    def __init__(self, mailbox: Mailbox, limits: Limits, instance: int) -> None:
        self._mailbox = mailbox
        self._limits = limits
        self._instance = instance
        self._asking = False
        self._ticks = 0

    def tick(self, proxy_id: str) -> None:
        """Once a second: tell what has changed, unless the last answer is still to come.

        Now and then of all, to hear what others have counted: a process of the proxy that still drains.
        """
        self._ticks += 1
        every = self._ticks % ALL_EVERY == 0
        changed = [account for account in self._limits.accounts.values() if every or account.word() != account.told]
        if changed and not self._asking:
            self._asking = True
            self._tell(proxy_id, changed, self._answered)

    def settle(
        self, proxy_id: str, done: Callable[[bool], None], timeout: float = ANSWER_TIMEOUT, final: bool = False
    ) -> None:
        """Tell of all accounts now; call `done` later, with whether the collector has answered."""
        self._tell(proxy_id, self._limits.accounts.values(), done, timeout, final)

    @property
    def knows_all(self) -> bool:
        """Is there no account whose quota waits for what was used before?"""
        return all(account.told is not None or not account.spec.quota for account in self._limits.accounts.values())

    def _answered(self, _heard: bool) -> None:
        self._asking = False

    def _tell(
        self,
        proxy_id: str,
        accounts: Iterable[Account],
        done: Callable[[bool], None],
        timeout: float = ANSWER_TIMEOUT,
        final: bool = False,
    ) -> None:
        by_id = {account.spec.id: account for account in accounts}
        words = {each: account.word() for each, account in by_id.items()}

        def answered(reply: Any) -> None:
            if isinstance(reply, Usage):
                _learn(by_id, words, reply.accounts)
            done(isinstance(reply, Usage))

        self._mailbox.ask(METRICS, TellUsage(proxy_id, self._instance, words, final), answered, timeout)


def _learn(by_id: dict[str, Account], words: dict[str, AccountUsage], totals: dict[str, AccountUsage]) -> None:
    for each, total in totals.items():
        if each in by_id:
            by_id[each].learn(words[each], total)
