"""Users of an authentication back end that has given them limits. They count for as long as the process lives.

What a guest uses is not reported: it is no account.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec, LimitsSpec
from actors.forwarding.limits.accounts import Account
from actors.forwarding.limits.sliding_window import FormerWindows, Key, SlidingWindow
from actors.forwarding.limits.usage_counters import UsageCounters

if TYPE_CHECKING:
    from actors.forwarding.limits.elsewhere import Elsewhere

GUEST = "guest"
"""Begins the key of a guest's window."""
GUESTS_KEPT = 4096
"""Beyond that, those without connections are forgotten, the oldest first."""
REVIEWED_AT_ONCE = 8
"""Of the oldest, for each new one: however many are in use, a new one costs the same."""


class Guests:
    """By user name."""

    def __init__(self, loop: Loop, former: FormerWindows | None = None) -> None:
        self._loop = loop
        self._former = former or FormerWindows(loop)
        self._usage = UsageCounters(loop)
        self._by_name: OrderedDict[str, Account] = OrderedDict()
        self._elsewhere: Elsewhere | None = None

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
            self._make_room()
            window = self._former.new(GUEST, user)
            guest = Account(self._loop, spec, time.time(), self._usage.acquire(user), window)
            self._by_name[user] = guest
            if self._elsewhere is not None:
                guest.share(self._elsewhere.key(GUEST, user))
            return
        self._by_name.move_to_end(user)
        if known.spec != spec:
            known.update(spec, time.time())

    def windows(self) -> Iterator[tuple[Key, SlidingWindow]]:
        """Their windows, by key."""
        return (((GUEST, user), guest.window) for user, guest in self._by_name.items())

    def share(self, elsewhere: Elsewhere) -> None:
        """Count together with other workers from now on."""
        self._elsewhere = elsewhere
        for user, guest in self._by_name.items():
            guest.share(elsewhere.key(GUEST, user))

    def _make_room(self) -> None:
        """Those in use that it meets go to the end, so the next review meets others."""
        for _ in range(REVIEWED_AT_ONCE):
            if len(self._by_name) < GUESTS_KEPT:
                return
            user, guest = self._by_name.popitem(last=False)
            if guest.dormant:
                guest.release()
                self._usage.discard(user)
            else:
                self._by_name[user] = guest

    def __repr__(self) -> str:
        return f"<Guests: {len(self._by_name)}>"
