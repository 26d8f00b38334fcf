"""The accounts of one proxy: their limits, their usage, and the end of connections that they may no longer have.

The usage of an account is what this process has counted in the period plus what all others have (`apply_total`): the
metrics collector adds up. The connections of an account that becomes invalid end at once; those of one that reaches
its quota a quarter of a second later, so that a last short response may arrive whole, or at once if that would be much
more than the quota.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.bus.messages.accounts import AccountState, AccountUsage
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.sliding_window import SlidingWindow
from actors.forwarding.limits.token_bucket import UNLIMITED, TokenBucket
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from config.model.quotas import period_at
from config.net.entries import read_network
from config.net.ip import plain

if TYPE_CHECKING:
    from actors.accounts.schedule import Schedule

QUOTA_GRACE = 0.25
GRACE_BYTES = 256 * 1024
"""Bytes beyond a quota that end the grace, however short it was."""

log = logging.getLogger(__name__)

REMOVED = "account_removed"
PASSWORD_CHANGED = "account_password_changed"  # noqa: S105 - a word for the record


class Account:
    """One account. `now` is Unix seconds, since periods and expiry follow the calendar."""

    def __init__(self, loop: Loop, spec: AccountSpec, now: float, on_used: Callable[[], None]) -> None:
        """`on_used` is called when bytes were counted, once between two calls of `take_report`."""
        self._loop = loop
        self._on_used = on_used
        self._unreported = False
        self.spec = spec
        self.meters: dict[Meter, None] = {}
        self.window = SlidingWindow(loop.now)
        self._inward = TokenBucket(loop, spec.limits.bandwidth_in)
        self._outward = TokenBucket(loop, spec.limits.bandwidth_out)
        self._networks = tuple(read_network(text) for text in spec.allow_clients)
        self._schedule = _schedule_of(spec)
        self._window = 0.0, 0.0
        """The part of the schedule that was open when it was asked last."""
        self._since, self._until = period_at(spec.period, now)
        self._resets = -1
        self._local = [0, 0]
        self._remote = 0, 0
        self._left = 0
        self._ending = False
        self.last_acknowledged: AccountUsage | None = None
        """The last report that the collector has acknowledged."""
        self._update_left()

    # --- the configuration ---

    def change(self, spec: AccountSpec, now: float) -> None:
        """Take another configuration of the account, and end the connections that it no longer allows."""
        if self.update(spec, now):
            for meter in self.with_password():
                if meter.holder is not None:
                    meter.holder.end(PASSWORD_CHANGED)
        self.enforce(now)

    def update(self, spec: AccountSpec, now: float) -> bool:
        """Take another configuration of the account. Returns whether the password is another."""
        before, self.spec = self.spec, spec
        self._inward.set_rate(spec.limits.bandwidth_in)
        self._outward.set_rate(spec.limits.bandwidth_out)
        self._networks = tuple(read_network(text) for text in spec.allow_clients)
        if spec.schedule != before.schedule:
            self._schedule, self._window = _schedule_of(spec), (0.0, 0.0)
        if spec.period != before.period:
            self._begin_period(now)
        self._update_left()
        return spec.password_hash != before.password_hash

    def with_password(self) -> tuple[Meter, ...]:
        """The connections that no credential was used for."""
        return tuple(meter for meter in self.meters if meter.credential is None)

    @property
    def dormant(self) -> bool:
        """Whether it may be forgotten: it has no connection, and has counted nothing."""
        return not self.meters and not any(self._local)

    def enforce(self, now: float) -> None:
        """End the connections that the account does not allow now."""
        for meter in tuple(self.meters):
            holder = meter.holder
            failure = self.refusal(holder.client_ip, now) if holder is not None else None
            if holder is not None and failure is not None:
                holder.end(failure.reason)

    def end_all(self, reason: str) -> None:
        """End all connections."""
        for meter in tuple(self.meters):
            if meter.holder is not None:
                meter.holder.end(reason)

    # --- decisions ---

    def refusal(self, client_ip: str, now: float) -> Failure | None:
        """Why the account may not be used now by a client at this address; connections and rates are not considered."""
        if self._until is not None and now >= self._until:
            self._begin_period(now)
        if not self.spec.enabled:
            return failures.ACCOUNT_DISABLED
        if 0 < self.spec.expires_at <= now:
            return failures.ACCOUNT_EXPIRED
        if self._schedule is not None and not self._in_schedule(self._schedule, now):
            return failures.OUTSIDE_SCHEDULE
        if self._networks and not self.may_come_from(client_ip):
            return failures.ACCOUNT_NETWORK
        if self.exhausted:
            wait = 0 if self._until is None else max(1, round(self._until - now))
            return failures.account_quota(self.spec.period, wait)
        return None

    def admit(self, meter: Meter) -> Failure | None:
        """Count one more request of this connection. Returns why it is refused, else None."""
        limits = self.spec.limits
        if meter.account is not self and 0 < limits.connections <= len(self.meters):
            return failures.account_connections(limits.connections)
        if limits.requests_per_minute:
            wait = self.window.try_acquire(limits.requests_per_minute, self._loop.now)
            if wait:
                return failures.account_requests(limits.requests_per_minute, wait)
        return None

    def _in_schedule(self, schedule: Schedule, now: float) -> bool:
        begin, end = self._window
        if not begin <= now < end:
            closes = schedule.closes_at(now)
            self._window = (0.0, 0.0) if closes is None else (now, closes)
        return self._window[1] > now

    def bucket(self, inward: bool) -> TokenBucket:
        """The token bucket of one direction."""
        return self._inward if inward else self._outward

    def may_come_from(self, client_ip: str) -> bool:
        """Whether a client at this address is in one of `allow_clients`."""
        address = plain(client_ip)
        return any(address in network for network in self._networks)

    # --- counting ---

    @property
    def exhausted(self) -> bool:
        """Whether the quota is used up."""
        return self._left <= 0 < self.spec.quota

    def count(self, inward: bool, bytes_moved: int) -> None:
        """Add moved bytes to its usage."""
        self._local[not inward] += bytes_moved
        self._left -= bytes_moved
        if not self._unreported:
            self._unreported = True
            self._on_used()
        if self._left <= 0 and self.spec.quota:
            self._on_quota_reached()

    def room(self) -> int:
        """Bytes that may still be moved under the quota, the grace included."""
        return max(0, self._left + GRACE_BYTES) if self.spec.quota else UNLIMITED

    def _on_quota_reached(self) -> None:
        if not self._ending:
            self._ending = True
            self._loop.call_later(QUOTA_GRACE, self._end_exhausted)
        if self._left <= -GRACE_BYTES and self.meters:
            self._loop.call_soon(self._end_exhausted)

    def _end_exhausted(self) -> None:
        self._ending = False
        self.enforce(time.time())

    def _update_left(self) -> None:
        self._left = self.spec.quota - sum(self._local) - sum(self._remote)
        if self.exhausted:
            self._on_quota_reached()

    def roll(self, now: float) -> None:
        """Begin the next period when it is due, and end the connections of an account that has expired or closes."""
        if self._since != period_at(self.spec.period, now)[0]:
            self._begin_period(now)
        if self.meters and (0 < self.spec.expires_at <= now or self._schedule is not None):
            self.enforce(now)

    @property
    def next_change(self) -> float | None:
        """When it expires, its period ends or its schedule closes, whichever comes first; None when none will."""
        now = time.time()
        end = self.spec.expires_at if self.spec.expires_at > now else None
        closes = self._window[1] if self._schedule is not None and self._in_schedule(self._schedule, now) else None
        return min((each for each in (end, self._until, closes) if each is not None), default=None)

    def _begin_period(self, now: float) -> None:
        self._since, self._until = period_at(self.spec.period, now)
        self._local = [0, 0]
        self._remote = 0, 0
        self.last_acknowledged = None
        self._update_left()

    # --- reports to the collector ---

    def usage(self) -> AccountUsage:
        """What this process has counted in the period."""
        return AccountUsage(self.spec.period, self._since, self._resets, *self._local)

    def take_report(self) -> AccountUsage:
        """`usage`, to be sent now."""
        self._unreported = False
        return self.usage()

    def apply_total(self, reported: AccountUsage, total: AccountUsage) -> None:
        """Take the collector's reply to `reported`: what all processes have counted."""
        if (total.period, total.since) != (self.spec.period, self._since) or reported.since != self._since:
            return  # one of the two is of another period
        if reported.resets not in (-1, self._resets):
            return  # sent before a reset that an earlier reply has reported
        if reported.resets in (-1, total.resets):
            self._remote = max(0, total.bytes_in - reported.bytes_in), max(0, total.bytes_out - reported.bytes_out)
            self.last_acknowledged = AccountUsage(
                reported.period, reported.since, total.resets, reported.bytes_in, reported.bytes_out
            )
        else:
            self._local = [self._local[0] - reported.bytes_in, self._local[1] - reported.bytes_out]
            self._remote = total.bytes_in, total.bytes_out
            self.last_acknowledged = None
        self._resets = total.resets
        self._update_left()

    def state(self) -> AccountState:
        """Its usage over all processes, as far as known, and its connections in this one."""
        used_in, used_out = self._local[0] + self._remote[0], self._local[1] + self._remote[1]
        usage = AccountUsage(self.spec.period, self._since, self._resets, used_in, used_out)
        return AccountState(usage, len(self.meters))

    def __repr__(self) -> str:
        return f"<Account {self.spec.username}, {sum(self._local)} bytes here, {len(self.meters)} connections>"


def _schedule_of(spec: AccountSpec) -> Schedule | None:
    """When the account may be used; None: always. In a time zone that this machine doesn't know: never."""
    if spec.schedule is None:
        return None
    from zoneinfo import ZoneInfoNotFoundError  # only accounts with a schedule pay for time zones

    from actors.accounts.schedule import Schedule

    try:
        return Schedule(spec.schedule)
    except ZoneInfoNotFoundError as error:
        log.error("the account %s can't be used: its schedule is in an unknown time zone: %s", spec.username, error)
        return Schedule(("UTC", ()))
