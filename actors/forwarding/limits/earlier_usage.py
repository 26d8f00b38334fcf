"""Has the metrics collector say what accounts with a quota have used before this process came to use them.

The collector writes that where all processes read it (`actors.state.usage`), and its reply says that it has, a message
for some accounts at a time. While it is unreachable traffic continues, and it is asked again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.bus.loop import Loop
from actors.bus.mailbox import Mailbox
from actors.bus.messages.accounts import QueryUsage, UsageOfAccounts
from actors.bus.messages.common import METRICS
from actors.forwarding.limits.usage import AccountCounter, UsageCounters, do_nothing

REPLY_TIMEOUT = 2.0
AGAIN = 1.0
"""Seconds until the collector is asked again."""
ACCOUNTS_MAX = 64
"""Accounts in one message: a few milliseconds of the collector."""


class EarlierUsage:
    """Asks for the accounts of `counters`, by itself whenever some are not known."""

    def __init__(self, loop: Loop, mailbox: Mailbox, counters: UsageCounters) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._counters = counters
        self._asking = False
        self._waiting: list[Callable[[], None]] = []
        counters.on_unknown = self._ask_soon
        counters.on_short = self._ask_for_more

    @property
    def is_known(self) -> bool:
        """Whether that of every account with a quota is known."""
        return not self._counters.unknown(1)

    def ask(self, replied: Callable[[], None]) -> None:
        """Call `replied` when all is known, or the collector does not reply."""
        self._waiting.append(replied)
        self._ask_soon()

    def _ask_for_more(self, counter: AccountCounter) -> None:
        """The collector books what was counted, has more leased, and says so where all processes read it."""
        self._mailbox.ask(METRICS, QueryUsage({counter.id: counter.period}), do_nothing, REPLY_TIMEOUT)

    def _ask_soon(self) -> None:
        if not self._asking:
            self._asking = True
            self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        unknown = self._counters.unknown(ACCOUNTS_MAX)
        if not unknown:
            self._end()
            return

        def on_reply(reply: Any) -> None:
            if isinstance(reply, UsageOfAccounts):
                for counter in unknown:
                    activity = reply.accounts.get(counter.id)
                    counter.include(None if activity is None else activity.usage)
            if any(each.known for each in unknown):
                self._ask()
            else:
                self._end()
                self._loop.call_later(AGAIN, self._ask_again)

        self._mailbox.ask(METRICS, QueryUsage({each.id: each.period for each in unknown}), on_reply, REPLY_TIMEOUT)

    def _ask_again(self) -> None:
        if not self.is_known:
            self._ask_soon()

    def _end(self) -> None:
        self._asking = False
        waiting, self._waiting = self._waiting, []
        for replied in waiting:
            replied()
