"""When accounts are next to be looked after: they expire, a period of their quota ends, their schedule closes.

There is one timer, for the earliest moment, and a heap of moments: with ten thousand credentials that lapse one after
the other each costs the same few steps. It has each moment once, since the quotas of thousands of accounts may end
together, and nothing else, since it is made anew now and then: of ten thousand numbers in a millisecond.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from actors.bus.loop import Loop, Timer

ALARM_MAX = 600.0
"""Seconds after which the wall clock is checked in any case: it may be set."""
CLOCK_STEP = 0.5
"""Seconds by which the wall clock differs from what the timer was set by, if it was set."""
ROLLED_AT_ONCE = 200
"""Accounts that are looked after in one turn of the loop at most: the periods of all quotas end at midnight."""
SURPLUS_MAX = 64
"""Outdated moments in the heap beyond the others, from which on it is made anew."""


class Rolling(Protocol):
    """An account, as far as alarms need it."""

    @property
    def next_change(self) -> float | None:
        """The next moment, in Unix seconds; None when there is none."""

    def roll(self, now: float) -> None:
        """Do what is due."""


class Alarms:
    """Calls `roll` of each account when its `next_change` has come, again and again."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._moments: dict[Rolling, float] = {}
        self._at: dict[float, dict[Rolling, None]] = {}
        """The same, by moment."""
        self._heap: list[float] = []
        """These moments, and some at which nothing is to be done any more."""
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._set_at_offset = 0.0

    def watch(self, account: Rolling) -> None:
        """Wake for this account; to be called again when its next change has become another."""
        moment = account.next_change
        if moment == self._moments.get(account):
            return
        self.forget(account)
        if moment is not None:
            self._moments[account] = moment
            if moment not in self._at:
                self._at[moment] = {}
                heapq.heappush(self._heap, moment)
            self._at[moment][account] = None
            self._set_timer()

    def check_clock(self) -> None:
        """Look after what is due when the wall clock was set, or the machine was asleep."""
        if self._timer is not None and abs(self._offset() - self._set_at_offset) > CLOCK_STEP:
            self._timer.cancel()
            self._timer = None
            self._set_timer()

    def _offset(self) -> float:
        return time.time() - self._loop.now

    def forget(self, account: Rolling) -> None:
        """Wake for it no more."""
        moment = self._moments.pop(account, None)
        if moment is not None:
            del self._at[moment][account]
            self._drop_if_empty(moment)

    def _drop_if_empty(self, moment: float) -> None:
        if not self._at[moment]:
            del self._at[moment]
            if len(self._heap) > 2 * len(self._at) + SURPLUS_MAX:
                self._heap = list(self._at)
                heapq.heapify(self._heap)

    def _set_timer(self) -> None:
        if not self._heap or (self._timer is not None and self._timer_at <= self._heap[0]):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at, self._set_at_offset = self._heap[0], self._offset()
        seconds = min(max(self._timer_at - time.time(), 0.0) + 0.001, ALARM_MAX)
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = time.time()
        for account in self._loop.while_time(islice(self._due(now), ROLLED_AT_ONCE)):
            account.roll(now)
            self.watch(account)
        self._set_timer()

    def _due(self, now: float) -> Iterator[Rolling]:
        """Take the accounts whose moment has come."""
        while self._heap and (moment := self._heap[0]) <= now:
            if moment in self._at:
                account, _ = self._at[moment].popitem()
                del self._moments[account]
                self._drop_if_empty(moment)
                yield account
            else:
                heapq.heappop(self._heap)

    def __len__(self) -> int:
        """Accounts that are watched."""
        return len(self._moments)
