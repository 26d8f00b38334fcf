"""Users of an authentication back end that has given them limits. They count for as long as the process lives.

What a guest uses is not reported: it is no account.
"""

from __future__ import annotations

import time

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec, LimitsSpec
from actors.forwarding.limits.accounts import Account
from actors.forwarding.limits.usage import UsageCounters

GUESTS_KEPT = 4096
"""Beyond that, those without connections are forgotten."""


class Guests:
    """By user name."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._usage = UsageCounters(loop)
        self._by_name: dict[str, Account] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, user: str) -> Account | None:
        """The guest of this name."""
        return self._by_name.get(user)

    def admit(self, user: str, limits: LimitsSpec | None) -> None:
        """From now on these limits hold for the user; None: no limits."""
        known = self._by_name.get(user)
        if known is None and limits is None:
            return
        spec = AccountSpec(user, user, None, limits=limits or LimitsSpec())
        if known is None:
            if len(self._by_name) >= GUESTS_KEPT:
                self._forget_dormant()
            self._by_name[user] = Account(self._loop, spec, time.time(), self._usage.acquire(user))
        elif known.spec != spec:
            known.update(spec, time.time())

    def _forget_dormant(self) -> None:
        for user, guest in tuple(self._by_name.items()):
            if guest.dormant:
                del self._by_name[user], self._usage.by_id[user]

    def __repr__(self) -> str:
        return f"<Guests: {len(self._by_name)}>"
