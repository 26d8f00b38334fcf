"""What accounts use: counted here in a table that all processes share (`actors.state.usage`), compared with quotas.

What all have used is read from there whenever bytes are about to move, so a quota is one, however many processes and
proxies an account uses, and whether the metrics collector is there or not. What may be moved at once near its end is a
small part of what is left, divided by the processes: all of them may be about to move as much.

The collector says up to what an account may be used on this machine: before it has, by little, since all of the quota
may be used already. When half of that is used a process asks for more.
At that number it stops reading until there is a larger one, and asks again and again. A collector that says nothing for
a second is missing: then it goes on by a little, and by twice as much after each second more, so a slow one costs
little, and a missing one delays nothing for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from actors.bus.loop import Loop, Timer
from actors.bus.messages.accounts import AccountState, AccountUsage
from actors.forwarding.limits.token_bucket import UNLIMITED, Wake
from actors.state.live_state import LiveState
from actors.state.table import FOREVER
from actors.state.usage import (
    BYTES_IN,
    BYTES_OUT,
    CHANGES,
    CONNECTIONS,
    MILLISECONDS,
    PERIOD,
    QUOTA,
    REFUSALS,
    REQUESTS,
    SEEN,
    SharedUsage,
    UsageOfProcess,
    period_word,
)
from config.model.choices import PERIODS, period_at

GRACE_BYTES: Final = 256 * 1024
"""Bytes beyond a quota that end the grace, however short it was."""
BEYOND_MAX: Final = 1 << 20
"""Bytes beyond a quota that all processes together may move."""
WINDOW_MIN: Final = 256 * 1024
WINDOW_OF_PROCESS_MIN: Final = 16 * 1024
"""What one of many processes may move at once, at least: of more than 48 less."""
WINDOW_PART: Final = 256
"""What may be moved at once is this part of what is left."""
UNKNOWN_MAX: Final = 512 * 1024
"""Bytes of a period up to which an account with a quota is used before the collector has said what was used before."""
AWAY_AFTER: Final = 1.0
"""Seconds that a connection waits for the collector to let the account be used further."""
ASKED_AFTER: Final = 0.05
ASKED_EACH: Final = 0.5
"""Seconds after which the collector is asked again, which says something each time: `ASKED_AFTER` at first, and twice
as many each time that it lets no more be used, up to `ASKED_EACH`."""
NO_MORE_AFTER: Final = 5.0
"""Seconds that a connection waits for the fleet's database, which alone knows what is left."""
CHECKED_EACH: Final = 0.02
"""Seconds after which it is seen whether it has."""
REFRESHED_AFTER: Final = 4096
"""Bytes after which what others use is read again in the same turn of the loop."""
PERIOD_OF_CHECKS: Final = 1.0
TIME_PERIOD: Final = 60.0
"""Seconds after which the time of open connections is counted though nothing else has changed."""


class AccountCounter:
    """What one account or credential uses. `quota` is 0 for none; `on_reached` is called when it is used up, or
    what is left is not to be known."""

    def __init__(self, counts: UsageCounters, account_id: str, shared: SharedUsage) -> None:
        self.id = account_id
        self.username = ""
        self.quota = 0
        self.on_reached: Callable[[], None] = do_nothing
        self.connections = 0
        self.released = False
        """Whether it goes with its last connection."""
        self._counts = counts
        self._shared = shared
        self._client_ip = ""
        self._changed = self._ended = False
        self._marked = counts.loop.now
        self._left = 0
        self._window = WINDOW_MIN
        self._refreshed_at = -1.0
        self._refresh_below = 0
        """Of what is left; in a later turn in any case."""
        self._beyond = 0
        self._beyond_of = FOREVER
        """Bytes by which it goes on without the collector, beyond the number that this has written last."""
        self._lease = 0
        """Bytes that it might move when the collector wrote that number."""
        self._ask_at = 0.0
        self._ask_after = ASKED_AFTER
        """Seconds from that question to the next."""
        self._waiting: list[Wake] = []
        self._away_at = self._ends_at = 0.0
        self._writes = 0
        self.period = ""
        self.since, self.until = period_at("total", 0.0)
        self._in_table()

    def _in_table(self) -> None:
        """It counts where `_shared` says, from now on."""
        at = self._shared.line
        self._numbers = self._shared.numbers
        self._at, self._in, self._out = at, at + BYTES_IN, at + BYTES_OUT

    # --- the configuration ---

    def configure(self, username: str, quota: int, period: str, now: float) -> None:
        """Take the account's name and quota; a different period begins at zero. `now` is Unix seconds."""
        if username != self.username:
            self.username = username
            self._shared.name(username)
            self._note_if_used()
        before, self.quota = (self.quota, self.period), quota
        if (quota, period) != before:
            self.period = period
            self._note_if_used()
            self._numbers[self._at + QUOTA], self._numbers[self._at + PERIOD] = quota, PERIODS.index(period)
            self.since, self.until = period_at(period, now)
            if period != before[1] or (quota and not before[0]):
                self._shared.begin(period_word(period, self.since), goes_on=period == before[1])
        self._update_left()
        if quota:
            self._note()
            self._counts.configured(self)

    def roll(self, now: float) -> None:
        """Begin the next period when it is due."""
        since, until = period_at(self.period, now)
        if since != self.since:
            self.since, self.until = since, until
            self._shared.begin(period_word(self.period, since))
            if self.quota:
                self._update_left()
                self._counts.configured(self)

    # --- counting ---

    def count(self, inward: bool, bytes_moved: int) -> None:
        """Add moved bytes."""
        if not self._changed:
            self._note()
        self._numbers[self._in if inward else self._out] += bytes_moved
        if self.quota:
            self._left -= bytes_moved
            if self._left <= 0:
                self.on_reached()

    def requested(self, client_ip: str) -> None:
        """Count a request of a client at this address."""
        if not self._changed:
            self._note()
        self._numbers[self._at + REQUESTS] += 1
        self._numbers[self._at + SEEN] = int(time.time() * 1_000_000)
        if client_ip != self._client_ip:
            self._client_ip = client_ip
            self._shared.seen_at(client_ip)

    def refused(self) -> None:
        """Count a refusal."""
        if not self._changed:
            self._note()
        self._numbers[self._at + REFUSALS] += 1

    def connected(self, change: int) -> None:
        """One connection more, or one less (-1)."""
        if not self._changed:
            self._note()
        self._add_time()
        self.connections += change
        self._numbers[self._at + CONNECTIONS] = self.connections
        self._counts.connected(self)

    def _note_if_used(self) -> None:
        if self._shared.line and not self._changed:
            self._note()

    def _note(self) -> None:
        """There is something new to be booked."""
        if self._counts.shares:
            if not self._ended:
                self._claim()
            self._changed = True
            self._numbers[self._at + CHANGES] += 1
            self._counts.changed(self)

    def flush(self) -> None:
        """Let all be booked that was counted by now."""
        self._changed = False
        if self._needs_line:
            self._claim()
        self._add_time()
        if self._shared.line:
            self._numbers[self._at + CHANGES] += 1
            if self._ended:
                self._shared.release()
                self._in_table()
        elif self._counts.shares and self._needs_line:
            self._shared.failed()
            self._note()

    def _claim(self) -> None:
        line, serial = self._shared.line, self._shared.serial
        self._shared.claim()
        if not line or serial != self._shared.serial:
            self._in_table()
            if line:  # it was lost
                numbers, at = self._numbers, self._at
                numbers[at + QUOTA], numbers[at + PERIOD] = self.quota, PERIODS.index(self.period)
                numbers[at + CONNECTIONS] = self.connections

    @property
    def _needs_line(self) -> bool:
        has_quota = self.quota and not self._ended
        return bool(self._shared.line or has_quota or any(self._numbers[BYTES_IN:CONNECTIONS]))

    def note_time(self) -> None:
        """Count the time of open connections."""
        if not self._changed:
            self._note()
        self._add_time()

    def end(self) -> None:
        """It is used no more. What is counted nevertheless is booked as well."""
        self._ended = True
        self.flush()

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
        if not self.quota:
            return False
        self.refresh()
        return self._left <= 0

    @property
    def is_unavailable(self) -> bool:
        """Whether what may be used without the fleet's database is used up."""
        return self._shared.no_more and self.quota > 0 and self._leased() <= 0

    @property
    def overrun(self) -> int:
        """Bytes beyond the quota; negative while there is some left."""
        return -self._left

    def wall(self) -> float:
        """Unix seconds, by the clock that periods go by."""
        return self._counts.wall()

    @property
    def known(self) -> bool:
        """Whether the collector has said what was used before."""
        return self._shared.known

    def room(self) -> int:
        """Bytes that may be moved now, the grace included."""
        if not self.quota:
            return UNLIMITED
        if self._counts.loop.now != self._refreshed_at or self._left <= self._refresh_below:
            self.refresh()
        room = self._left + GRACE_BYTES
        if room > self._window:
            room = self._window
        if self._shared.may_use != FOREVER or not self._shared.known:
            room = min(room, self._leased())
        return max(0, room)

    def _leased(self) -> int:
        """Bytes that the collector lets be used, of what is left."""
        may_use = self._shared.may_use
        if may_use == FOREVER:
            if self._shared.known or not self._counts.shares:
                return UNLIMITED
            may_use = UNKNOWN_MAX
        leased = may_use - self.quota + self._left
        if may_use != self._beyond_of:
            self._beyond_of, self._beyond, self._lease = may_use, 0, leased
            self._ask_at, self._ask_after = 0.0, ASKED_AFTER
        if leased <= self._lease // 2:
            self._ask()
        return leased + self._beyond

    def _ask(self) -> None:
        """Have more leased."""
        now = self._counts.loop.now
        if now >= self._ask_at and self._left > 0:
            self._ask_at = now + self._ask_after
            self._ask_after = min(2 * self._ask_after, ASKED_EACH)
            self._counts.on_short(self)

    def wait(self, wake: Wake) -> bool:
        """Call `wake` when the collector lets the account be used further; False when nothing waits for that."""
        if not self.quota or self._leased() > 0:
            return False
        if not self._waiting:
            now = self._counts.loop.now
            self._writes, self._away_at, self._ends_at = self._shared.writes, now + AWAY_AFTER, now + NO_MORE_AFTER
            self._counts.loop.call_later(CHECKED_EACH, self._go_on)
        self._waiting.append(wake)
        return True

    def _go_on(self) -> None:
        loop = self._counts.loop
        self.refresh()
        if self._shared.writes != self._writes:
            self._writes, self._away_at = self._shared.writes, loop.now + AWAY_AFTER
        if self._leased() <= 0 and loop.now >= self._away_at:
            self._beyond = min(max(WINDOW_MIN, 2 * self._beyond), UNLIMITED)
        if self._leased() <= 0 and self.quota:
            if loop.now >= self._ends_at and self.is_unavailable:
                self.on_reached()
            loop.call_later(CHECKED_EACH, self._go_on)
            return
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            loop.call_soon(wake)

    def refresh(self) -> None:
        """Consider what all have used by now."""
        now = self._counts.loop.now
        if now != self._refreshed_at or self._left <= self._refresh_below:
            self._refreshed_at = now
            self._update_left()

    def _update_left(self) -> None:
        if not self.quota:
            self._left = 0
            return
        shared = self._shared
        self._left = left = self.quota - shared.used()
        self._refresh_below = max(0, left - REFRESHED_AFTER)
        window = left // WINDOW_PART
        if window < WINDOW_MIN:
            window = WINDOW_MIN
        if shared.processes > 1:
            least = min(WINDOW_OF_PROCESS_MIN, (BEYOND_MAX - GRACE_BYTES) // shared.processes)
            window = max(least, window // shared.processes)
        self._window = window
        if left <= 0:
            self.on_reached()

    def include(self, usage: AccountUsage | None) -> None:
        """The collector says that this was used; None: nothing. What the table says is newer."""
        self._update_left()
        if not self.known and (usage is None or (usage.period, usage.since) == (self.period, self.since)):
            self._shared.include(*((0, 0) if usage is None else (usage.bytes_in, usage.bytes_out)))
            self._update_left()

    def forget_total(self) -> None:
        """What was used is not known any more."""
        self._shared.forget()

    def state(self) -> AccountState:
        """Its usage over all processes, as far as known, and its connections in this one."""
        used_in, used_out = self._shared.used_in_and_out()
        return AccountState(AccountUsage(self.period, self.since, used_in, used_out), self.connections, self.known)

    def __repr__(self) -> str:
        return f"<AccountCounter {self.id}, {self._shared!r}, {self._left} left>"


def do_nothing(_: object = None) -> None:
    """Nothing is to be done."""


class UsageCounters:
    """The counters of all accounts in use, by id. Each is made once, since it counts for the whole process."""

    def __init__(self, loop: Loop, state: LiveState | None = None) -> None:
        """Without `state` the process counts for itself."""
        self.loop = loop
        self.by_id: dict[str, AccountCounter] = {}
        self.on_unknown: Callable[[], None] = do_nothing
        """Called when it is not known what was used before of an account with a quota."""
        self.on_short: Callable[[AccountCounter], None] = do_nothing
        """Called when half of what the collector lets be used is used."""
        self._process = UsageOfProcess(state or LiveState(lambda: loop.now))
        self.shares = self._process.shares
        """Whether it is counted where others see it."""
        self._changed: dict[AccountCounter, None] = {}
        self._connected: dict[str, AccountCounter] = {}
        self._unknown: dict[str, AccountCounter] = {}
        self._timer: Timer | None = None
        self._time_timer: Timer | None = None
        self._to_check: list[AccountCounter] = []
        self._to_time: list[AccountCounter] = []

    def wall(self) -> float:
        """Unix seconds, by the clock that periods go by."""
        return self._process.wall()

    def acquire(self, account_id: str) -> AccountCounter:
        """The counter of this account. To be configured before it is used."""
        counter = self.by_id.get(account_id)
        if counter is None:
            counter = self.by_id[account_id] = AccountCounter(self, account_id, self._process.account(account_id))
        counter.released = False
        return counter

    def release(self, account_id: str) -> None:
        """The account is not in use any more: its counter goes once it has no connection."""
        counter = self.by_id.get(account_id)
        if counter is not None:
            counter.released = True
            if not counter.connections:
                self.discard(account_id)

    def discard(self, account_id: str) -> None:
        """Forget a counter."""
        counter = self.by_id.pop(account_id)
        self._connected.pop(account_id, None)
        self._unknown.pop(account_id, None)
        self._changed.pop(counter, None)
        counter.end()

    # --- for the counters ---

    def changed(self, counter: AccountCounter) -> None:
        """It has something new."""
        self._changed[counter] = None
        self._check_later()

    def connected(self, counter: AccountCounter) -> None:
        """It has another number of connections."""
        if counter.connections:
            self._connected[counter.id] = counter
            if self._time_timer is None and self.shares:
                self._time_timer = self.loop.call_later(TIME_PERIOD, self._note_time)
        else:
            self._connected.pop(counter.id, None)
            if counter.released and counter.id in self.by_id:
                self.discard(counter.id)

    def configured(self, counter: AccountCounter) -> None:
        """It has a quota."""
        if not counter.known:
            self._unknown[counter.id] = counter
            self.on_unknown()

    # --- what was used before ---

    def unknown(self, most: int) -> list[AccountCounter]:
        """Those with a quota of which it isn't known what was used before; not all of many."""
        for counter in tuple(self._unknown.values()):
            if counter.known or not counter.quota:
                del self._unknown[counter.id]
        return list(self._unknown.values())[:most]

    def flush(self) -> None:
        """The process ends: what has no line is to get one."""
        for counter in tuple(self._changed):
            counter.flush()

    def forget_totals(self) -> None:
        """What was used is not known any more, where no table says that."""
        for counter in self.by_id.values() if not self.shares else ():
            if counter.quota:
                counter.forget_total()
                self._unknown[counter.id] = counter

    # --- each second ---

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(PERIOD_OF_CHECKS, self._check)

    def _check(self) -> None:
        """Let what was counted be booked, and end what has reached a quota because of others."""
        self._timer = None
        for counter in self.loop.while_time(tuple(self._changed)):
            del self._changed[counter]
            counter.flush()
        if not self._to_check:
            self._to_check = [each for each in self._connected.values() if each.quota]
        if self._to_check or self._changed:
            self._check_later()
        for counter in self.loop.while_time(tuple(reversed(self._to_check))):
            self._to_check.pop()
            counter.refresh()

    def _note_time(self) -> None:
        self._time_timer = None
        self._to_time = self._to_time or list(self._connected.values())
        for counter in self.loop.while_time(tuple(reversed(self._to_time))):
            self._to_time.pop()
            counter.note_time()
        if self._to_time:
            self._time_timer = self.loop.call_later(PERIOD_OF_CHECKS, self._note_time)
        elif self._connected:
            self._time_timer = self.loop.call_later(TIME_PERIOD, self._note_time)
