"""What accounts use: counted here, reported to the metrics collector, and compared with their quotas.

The figures of a process are cumulative and never set back. The collector's reply to a report says what the account has
used in its period over all proxies (`AccountTotal`); its usage is that, and what this process has counted since.

So that the connections of many proxies can't run far beyond a quota together, a process may have at most a window of
bytes that the collector has not acknowledged: then it reads no more until the reply is there, a millisecond or so
later. The window is a small part of what is left of the quota, so that far from it nothing ever waits. While the
collector is away there is no window, and counting goes on with the last totals.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable

from actors.bus.loop import Loop, Timer
from actors.bus.messages.accounts import AccountReport, AccountState, AccountTotal, AccountUsage
from actors.forwarding.limits.token_bucket import UNLIMITED, Wake
from actors.usage_file import (
    BYTES_IN,
    BYTES_OUT,
    MILLISECONDS,
    REFUSALS,
    REQUESTS,
    Slot,
    UsageFile,
    private_slot,
)
from config.model.quotas import period_at

log = logging.getLogger(__name__)

GRACE_BYTES = 256 * 1024
"""Bytes beyond a quota that end the grace, however short it was."""
WINDOW_MIN = 256 * 1024
WINDOW_PART = 256
"""The window is this part of what is left, so that two hundred proxies together stay within it."""
AWAY_AFTER = 1.0
"""Seconds that a connection waits for the collector's reply; then it is away, until it replies again."""

_NEVER = 1 << 62


class AccountCounter:
    """What one account or credential uses. `quota` is 0 for none; `on_reached` is called when it is used up."""

    def __init__(self, counts: UsageCounters, account_id: str, serial: int, slot: Slot) -> None:
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
        self._unacknowledged = 0
        self._window = WINDOW_MIN
        self._report_at = WINDOW_MIN // 2
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
        self._update_left()
        if before != (username, quota, period) and (quota or before[0]):
            self.changed()
            if not self.known:
                self._counts.on_urgent()  # what was used before is not known yet

    def roll(self, now: float) -> None:
        """Begin the next period when it is due."""
        if self.since != period_at(self.period, now)[0]:
            self._begin_period(now)

    def _begin_period(self, now: float) -> None:
        self.since, self.until = period_at(self.period, now)
        self._elsewhere = -self._numbers[self._in], -self._numbers[self._out]
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
            if self._unacknowledged >= self._report_at:
                self._report_at = _NEVER
                self._counts.on_urgent()
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
        return self._left <= 0 < self.quota

    @property
    def overrun(self) -> int:
        """Bytes beyond the quota; negative while there is some left."""
        return -self._left

    def room(self) -> int:
        """Bytes that may be moved now, the grace included."""
        if not self.quota:
            return UNLIMITED
        return max(0, min(self._left + GRACE_BYTES, self._window - self._unacknowledged))

    def wait(self, wake: Wake) -> bool:
        """Call `wake` when the collector has acknowledged what was counted; False when nothing waits for that."""
        if not self.quota or self._unacknowledged < self._window:
            return False
        self._waiting.append(wake)
        if self._away is None:
            self._away = self._counts.loop.call_later(AWAY_AFTER, self.collector_away)
        self._counts.on_urgent()
        return True

    def _update_left(self) -> None:
        used_in, used_out = self._used()
        self._left = self.quota - used_in - used_out
        if self.exhausted:
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
        else:
            self.changed()  # one of the two is of another period: the next report decides
        self._update_left()
        self._open_window(max(WINDOW_MIN, self._left // WINDOW_PART))

    def collector_away(self) -> None:
        """The collector does not reply: go on without it."""
        self._open_window(UNLIMITED)

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
    def slot(self) -> Slot:
        """Where it counts."""
        return self._slot

    def __repr__(self) -> str:
        return f"<AccountCounter {self.id}, {sum(self._used())} bytes, {self._left} left>"


class UsageCounters:
    """The counters of all accounts in use, by id. Each is made once, since it counts for the whole process."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.by_id: dict[str, AccountCounter] = {}
        self.open_file: Callable[[], UsageFile] | None = None
        """Opens the file in which they count; None: they count in memory."""
        self.on_changed: Callable[[], None] = do_nothing
        """Called when there is something to report, while there was nothing before."""
        self.on_urgent: Callable[[], None] = do_nothing
        """Called when a report is due at once."""
        self._changed: dict[str, AccountCounter] = {}
        self._released: dict[str, AccountCounter] = {}
        self._file: UsageFile | None = None
        self._serials = itertools.count(1)

    def acquire(self, account_id: str) -> AccountCounter:
        """The counter of this account. To be configured before it is used."""
        counter = self.by_id.get(account_id)
        if counter is None:
            serial = next(self._serials)
            counter = self.by_id[account_id] = AccountCounter(self, account_id, serial, self._slot(account_id, serial))
        self._released.pop(account_id, None)
        return counter

    def release(self, account_id: str) -> None:
        """The account is not in use any more: its counter goes once the collector has stored what it says."""
        counter = self.by_id.get(account_id)
        if counter is not None:
            self._released[account_id] = counter
            if counter.settled:
                self._remove(counter)

    def remove_settled(self) -> None:
        """Remove released counters whose figures the collector has stored."""
        for counter in [each for each in self._released.values() if each.settled]:
            self._remove(counter)

    def _remove(self, counter: AccountCounter) -> None:
        del self.by_id[counter.id], self._released[counter.id]
        if self._file is not None:
            self._file.release(counter.slot)

    def changed(self, counter: AccountCounter) -> None:
        """There is something to report of this one."""
        first = not self._changed
        self._changed[counter.id] = counter
        if first:
            self.on_changed()

    @property
    def any_changed(self) -> bool:
        """Whether there is anything to report."""
        return bool(self._changed)

    def take_changed(self) -> list[AccountCounter]:
        """Those with something to report, which is reported now."""
        changed, self._changed = self._changed, {}
        return list(changed.values())

    def take_all(self) -> list[AccountCounter]:
        """All of them, which are reported now."""
        self._changed = {}
        return list(self.by_id.values())

    def note_time(self) -> None:
        """Report those with open connections, whose time goes on."""
        for counter in self.by_id.values():
            if counter.connections:
                counter.changed()

    def apply_totals(self, totals: dict[str, AccountTotal]) -> None:
        """Take what the collector says."""
        for account_id, total in totals.items():
            counter = self.by_id.get(account_id)
            if counter is not None:
                counter.apply_total(total)

    def _slot(self, account_id: str, serial: int) -> Slot:
        try:
            if self._file is None and self.open_file is not None:
                self._file = self.open_file()
            return private_slot() if self._file is None else self._file.slot(account_id, serial)
        except OSError as error:
            log.error("cannot keep the usage of accounts in a file; what this process counts may be lost: %s", error)
            return private_slot()


def do_nothing() -> None:
    """Nothing is to be done."""
