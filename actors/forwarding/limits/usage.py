"""What accounts use: counted here, reported to the metrics collector, and compared with their quotas.

The figures of a process are cumulative and never set back. The collector's reply to a report says what the account has
used in its period over all proxies (`AccountTotal`); its usage is that, and what this process has counted since.

So that the connections of many proxies can't run far beyond a quota together, a process may have at most a window of
bytes that the collector has not acknowledged: then it reads no more until the reply is there, a millisecond or so
later. The window is a small part of what is left of the quota, so that far from it nothing ever waits. While the
collector is away counting goes on with the last totals, and the window is twice as wide after each second: a collector
that is merely slow costs little, and a missing one delays none for long. The workers of one proxy see in shared
memory what each other has counted, so they hold a quota together, collector or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from actors.bus.loop import Timer
from actors.bus.messages.accounts import AccountReport, AccountState, AccountTotal, AccountUsage
from actors.forwarding.limits.token_bucket import UNLIMITED, Wake
from actors.usage_file import (
    BYTES_IN,
    BYTES_OUT,
    MILLISECONDS,
    REFUSALS,
    REQUESTS,
    UsageSlot,
)
from config.model.choices import period_at

if TYPE_CHECKING:
    from actors.forwarding.limits.usage_counters import UsageCounters
    from actors.forwarding.limits.workers import UsedByOthers

GRACE_BYTES = 256 * 1024
"""Bytes beyond a quota that end the grace, however short it was."""
WINDOW_MIN = 256 * 1024
WINDOW_PART = 256
"""The window is this part of what is left, so that two hundred proxies together stay within it."""
AWAY_AFTER = 1.0
"""Seconds that a connection waits for the collector's reply; then the window is twice as wide, until it replies."""

REFRESHED_AFTER = 4096
"""Bytes after which what other workers use is read again in the same turn of the loop."""

_NEVER = 1 << 62


class AccountCounter:
    """What one account or credential uses. `quota` is 0 for none; `on_reached` is called when it is used up."""

    def __init__(self, counts: UsageCounters, account_id: str, serial: int, slot: UsageSlot) -> None:
        self.id = account_id
        self.serial = serial
        self.username = ""
        self.quota = 0
        self.on_reached: Callable[[], None] = do_nothing
        self.connections = 0
        self.last_seen = 0.0
        self.client_ip = ""
        self.known = False
        """Whether the collector has said what was used before."""
        self._counts = counts
        self._slot = slot
        self._numbers, at = slot
        self._in, self._out = at + BYTES_IN, at + BYTES_OUT
        self._at = at
        self._elsewhere = 0, 0
        self._left = 0
        self._shared: UsedByOthers | None = None
        """With a quota, what other workers of the proxy use."""
        self._shared_bytes = 0
        self._refreshed_at = -1.0
        self._refresh_below = 0
        """Of what is left; in a later turn in any case."""
        self._unacknowledged = 0
        self._window = counts.part_of_window(WINDOW_MIN)
        self._report_at = self._window // 2
        self._marked = counts.loop.now
        self._changed = False
        self._in_flight = 0
        self._waiting: list[Wake] = []
        self._away: Timer | None = None
        self.period = "total"
        self.since, self.until = period_at("total", 0.0)

    # --- the configuration ---

    def configure(self, username: str, quota: int, period: str, now: float) -> None:
        """Take the account's name and quota; a different period begins at zero. `now` is Unix seconds."""
        before = self.username, self.quota, self.period
        self.username = username
        if period != self.period:
            self.period = period
            self._begin_period(now)
        self.quota = quota
        self.update_sharing()
        if before != (username, quota, period) and (quota or before[0]):
            self.changed()
            if not self.known:
                self._counts.urgent(self)  # what was used before is not known yet

    def roll(self, now: float) -> None:
        """Begin the next period when it is due."""
        if self.since != period_at(self.period, now)[0]:
            self._begin_period(now)

    def _begin_period(self, now: float) -> None:
        self.since, self.until = period_at(self.period, now)
        self._elsewhere = -self._numbers[self._in], -self._numbers[self._out]
        if self._shared is not None:
            self._shared.begin()
        self._update_left()
        self.changed()

    # --- counting ---

    def count(self, inward: bool, bytes_moved: int) -> None:
        """Add moved bytes."""
        self._numbers[self._in if inward else self._out] += bytes_moved
        self._left -= bytes_moved
        self._unacknowledged += bytes_moved
        if not self._changed:
            self.changed()
        if self.quota:
            if self._shared is not None:
                self._shared.count(self._numbers[self._in] + self._numbers[self._out])
            if self._unacknowledged >= self._report_at:
                self._report_at = _NEVER
                self._counts.urgent(self)
            if self._left <= 0:
                self.on_reached()

    def requested(self, client_ip: str) -> None:
        """Count a request of a client at this address."""
        self._numbers[self._at + REQUESTS] += 1
        self.last_seen = time.time()
        self.client_ip = client_ip
        self.changed()

    def refused(self) -> None:
        """Count a refusal."""
        self._numbers[self._at + REFUSALS] += 1
        self.changed()

    def connected(self, change: int) -> None:
        """One connection more, or one less (-1)."""
        self._add_time()
        self.connections += change
        self.changed()

    def changed(self) -> None:
        """It is to be reported."""
        self._changed = True
        self._counts.changed(self)

    def _add_time(self) -> None:
        now = self._counts.loop.now
        if self.connections:
            milliseconds = int((now - self._marked) * 1000)
            self._numbers[self._at + MILLISECONDS] += milliseconds * self.connections
            self._marked += milliseconds / 1000
        else:
            self._marked = now

    # --- the quota ---

    @property
    def exhausted(self) -> bool:
        """Whether the quota is used up."""
        self._refresh()
        return self._left <= 0 < self.quota

    @property
    def overrun(self) -> int:
        """Bytes beyond the quota; negative while there is some left."""
        return -self._left

    def room(self) -> int:
        """Bytes that may be moved now, the grace included."""
        if not self.quota:
            return UNLIMITED
        room = self._window - self._unacknowledged
        if self._shared is not None:
            self._refresh()
            room = min(room, self._usual_window())  # all of them may be about to move as much
        return max(0, min(self._left + GRACE_BYTES, room))

    def wait(self, wake: Wake) -> bool:
        """Call `wake` when the collector has acknowledged what was counted; False when nothing waits for that."""
        if not self.quota or self._unacknowledged < self._window:
            return False
        self._waiting.append(wake)
        if self._away is None:
            self._away = self._counts.loop.call_later(AWAY_AFTER, self.collector_away)
        self._counts.urgent(self)
        return True

    def update_sharing(self) -> None:
        """Count together with other workers, if there are any and it has a quota."""
        workers, shared = self._counts.sharing, self._shared
        if workers is not None and shared is None and self.quota:
            shared = self._shared = workers.used(self.id, self.serial)
            shared.count(self._numbers[self._in] + self._numbers[self._out])
        elif not self.quota:
            self.end_sharing()
        self._update_left()

    def end_sharing(self) -> None:
        """It is not counted together with other workers any more."""
        if self._shared is not None:
            self._shared.end()
            self._shared = None

    def _update_left(self) -> None:
        used_in, used_out = self._used()
        self._shared_bytes = 0 if self._shared is None else self._shared.bytes()
        self._left = self.quota - used_in - used_out - self._shared_bytes
        if self._left <= 0 < self.quota:
            self.on_reached()

    def _refresh(self) -> None:
        """Consider what other workers have counted by now."""
        shared, now = self._shared, self._counts.loop.now
        if shared is None or (now == self._refreshed_at and self._left > self._refresh_below):
            return
        self._refreshed_at = now
        before, self._shared_bytes = self._shared_bytes, shared.bytes()
        self._left -= self._shared_bytes - before
        self._refresh_below = self._left - REFRESHED_AFTER
        if self._shared_bytes > before and self._left <= 0 < self.quota:
            self.on_reached()

    def _used(self) -> tuple[int, int]:
        return self._numbers[self._in] + self._elsewhere[0], self._numbers[self._out] + self._elsewhere[1]

    # --- the collector ---

    def take_report(self) -> AccountReport:
        """What is to be reported, which is sent now."""
        self._add_time()
        self._changed = False
        self._in_flight += 1
        numbers, at = self._numbers, self._at
        return AccountReport(
            serial=self.serial,
            username=self.username,
            quota=self.quota,
            period=self.period,
            bytes_in=numbers[self._in],
            bytes_out=numbers[self._out],
            requests=numbers[at + REQUESTS],
            milliseconds=numbers[at + MILLISECONDS],
            refusals=numbers[at + REFUSALS],
            connections=self.connections,
            last_seen=self.last_seen,
            client_ip=self.client_ip,
        )

    def reported(self, stored: bool) -> None:
        """The collector has stored a report that was sent, or has not."""
        self._in_flight -= 1
        if not stored:
            self.changed()
            self.collector_away()

    @property
    def is_changed(self) -> bool:
        """Whether there is something to report."""
        return self._changed

    @property
    def settled(self) -> bool:
        """Whether the collector has stored all that was counted."""
        return not (self._changed or self._in_flight or self.connections)

    def apply_total(self, total: AccountTotal) -> None:
        """Take what the collector says was used over all proxies."""
        if total.serial != self.serial:
            return
        own_in, own_out = self._numbers[self._in], self._numbers[self._out]
        self._unacknowledged = own_in - total.reported_in + own_out - total.reported_out
        if (total.period, total.since) == (self.period, self.since):
            self.known = True
            self._elsewhere = total.bytes_in - total.reported_in, total.bytes_out - total.reported_out
            if self._shared is not None:
                self._shared.include(total.others)
        else:
            self.changed()  # one of the two is of another period: the next report decides
        self._update_left()
        self._open_window(self._usual_window())

    def collector_away(self) -> None:
        """The collector does not reply: go on without it."""
        self._open_window(min(2 * self._window, UNLIMITED))

    def _usual_window(self) -> int:
        return self._counts.part_of_window(max(WINDOW_MIN, self._left // WINDOW_PART))

    def _open_window(self, size: int) -> None:
        self._window = size
        self._report_at = size // 2
        if self._away is not None:
            self._away.cancel()
            self._away = None
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for wake in waiting:
                self._counts.loop.call_soon(wake)

    def state(self) -> AccountState:
        """Its usage over all proxies, as far as known, and its connections in this process."""
        return AccountState(AccountUsage(self.period, self.since, *self._used()), self.connections, self.known)

    @property
    def slot(self) -> UsageSlot:
        """Where it counts."""
        return self._slot

    def __repr__(self) -> str:
        return f"<AccountCounter {self.id}, {sum(self._used())} bytes, {self._left} left>"


def do_nothing() -> None:
    """Nothing is to be done."""
