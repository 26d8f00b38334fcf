"""The accounts of one proxy: their limits, and the end of connections that they may no longer have.

What an account has used is counted by `usage`. The connections of an account that becomes invalid end at once; those of
one that reaches its quota a quarter of a second later, so that a last short response may arrive whole, or at once if
that would be much more than the quota.

A credential of an account in use narrows the account, all of which holds as well.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec, LimitsSpec
from actors.forwarding.limits.meter import Meter
from actors.forwarding.limits.shared_bandwidth import divide
from actors.forwarding.limits.token_bucket import TokenBucket, Wake
from actors.forwarding.limits.usage import GRACE_BYTES, AccountCounter, UsageCounters, do_nothing
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.state.counts import SharedKey
from actors.state.live_state import LiveState
from config.net.addresses import plain
from config.net.entries import read_network

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord, WeekSchedule

log = logging.getLogger(__name__)

QUOTA_GRACE = 0.25
COUNTS = "counts"
"""Begins the key of connections and requests."""

REMOVED = "account_removed"
PASSWORD_CHANGED = "account_password_changed"  # noqa: S105 - a word for the record
CERTIFICATE_REMOVED = "account_certificate_removed"
NAME_NOT_ENOUGH = "account_name_not_enough"


class Account:
    """One account. `now` is Unix seconds, since periods and expiry follow the calendar."""

    def __init__(
        self,
        loop: Loop,
        spec: AccountSpec,
        now: float,
        usage: AccountCounter,
        key_of: Callable[[str], SharedKey],
    ) -> None:
        """`usage` counts what it uses; `key_of` is what all processes count of it, by a word."""
        self._loop = loop
        self.spec = spec
        self.usage = usage
        self.meters: dict[Meter, None] = {}
        self._key_of = key_of
        self._shared = key_of(COUNTS)
        self._shared.set_limits(spec.limits.connections, spec.limits.requests_per_minute)
        self._counted = spec.limits.connections > 0
        """Whether other processes need to see its connections."""
        self._inward = TokenBucket(loop, spec.limits.bandwidth_in)
        self._outward = TokenBucket(loop, spec.limits.bandwidth_out)
        divide(loop, key_of, self._inward, self._outward)
        self._networks = tuple(read_network(text) for text in spec.allow_clients)
        self._schedule = _schedule_of(spec)
        self._window = 0.0, 0.0
        """The part of the schedule that was open when it was asked last."""
        self._ending = False
        self._destinations_changed = False
        usage.on_reached = self._on_quota_reached
        usage.configure(spec.username, spec.quota, spec.period, now)

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
        self._counted = spec.limits.connections > 0
        self._shared.set_limits(spec.limits.connections, spec.limits.requests_per_minute)
        self._publish()
        self._inward.set_rate(spec.limits.bandwidth_in)
        self._outward.set_rate(spec.limits.bandwidth_out)
        divide(self._loop, self._key_of, self._inward, self._outward)
        self._networks = tuple(read_network(text) for text in spec.allow_clients)
        if spec.schedule != before.schedule:
            self._schedule, self._window = _schedule_of(spec), (0.0, 0.0)
        if _destinations(spec) != _destinations(before):
            self._destinations_changed = True
        self.usage.configure(spec.username, spec.quota, spec.period, now)
        return spec.password_hash != before.password_hash

    def with_password(self) -> tuple[Meter, ...]:
        """The connections that neither a credential nor a certificate was used for."""
        return tuple(meter for meter in self.meters if meter.credential is None and meter.certificate is None)

    def without_certificate(self) -> tuple[Meter, ...]:
        """The connections by a certificate that is none of the account any more."""
        entries = self.spec.certificates
        return tuple(
            meter
            for meter in self.meters
            if meter.certificate is not None and not any(each in entries for each in meter.certificate)
        )

    def by_name(self) -> tuple[Meter, ...]:
        """The connections that the user name alone has authenticated."""
        return tuple(meter for meter in self.meters if meter.by_name)

    @property
    def connections(self) -> int:
        """Its connections, those of other processes included."""
        return len(self.meters) + self._shared.connections()

    def _publish(self) -> None:
        self._shared.set_connections(len(self.meters) if self._counted else 0)

    @property
    def dormant(self) -> bool:
        """Whether it may be forgotten: it has no connection."""
        return not self.meters

    def expired(self, now: float) -> bool:
        """Whether it has expired."""
        return 0 < self.spec.expires_at <= now

    def enforce(self, now: float) -> None:
        """End the connections that the account does not allow now."""
        judged, self._destinations_changed = self._destinations_changed, False
        for meter in tuple(self.meters):
            holder = meter.holder
            if holder is None:
                continue
            failure = self.refusal(holder.client_ip, now)
            if failure is not None:
                holder.end(failure.reason)
            elif judged:
                holder.destinations_changed()

    def end_all(self, reason: str) -> None:
        """End all connections."""
        for meter in tuple(self.meters):
            if meter.holder is not None:
                meter.holder.end(reason)

    def release(self) -> None:
        """It is in use no more. Without this its memory would wait for the collection of cycles, which is rare here."""
        if self.usage.on_reached == self._on_quota_reached:
            self.usage.on_reached = do_nothing
        self._shared.release()
        self._counted = False  # connections that end after this claim no line anew
        if self._inward.sharing is not None:
            self._inward.sharing.end()

    # --- decisions ---

    def refusal(self, client_ip: str, now: float, at: float = 0.0) -> Failure | None:
        """Why the account may not be used now by a client at this address; connections and rates are not considered.
        `at` is another time that is asked about: usage stays that of now."""
        until = self.usage.until
        if until is not None and not self.usage.since <= now < until:
            self.usage.roll(now)
        if not self.spec.enabled:
            return failures.ACCOUNT_DISABLED
        if self.expired(at or now):
            return failures.ACCOUNT_EXPIRED
        if self._schedule is not None and not self._in_schedule(self._schedule, at or now):
            return failures.OUTSIDE_SCHEDULE
        if self._networks and not self.may_come_from(client_ip):
            return failures.ACCOUNT_NETWORK
        if self.usage.exhausted:
            until = self.usage.until
            wait = 0 if until is None else max(1, round(until - now))
            return failures.account_quota(self.spec.period, wait)
        return failures.QUOTA_UNAVAILABLE if self.usage.is_unavailable else None

    def admit(self, meter: Meter) -> Failure | None:
        """Count one more request of this connection. Returns why it is refused, else None."""
        limits = self.spec.limits
        if meter.account is not self and 0 < limits.connections <= self.connections:
            return failures.account_connections(limits.connections)
        if limits.requests_per_minute:
            wait = self._shared.try_acquire(limits.requests_per_minute)
            if wait:
                return failures.account_requests(limits.requests_per_minute, wait)
        return None

    def _in_schedule(self, schedule: WeekSchedule, now: float) -> bool:
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

    # --- for meters and throttles ---

    def attach(self, meter: Meter) -> None:
        """A connection belongs to it from now on."""
        self.meters[meter] = None
        self.usage.connected(1)
        if self._counted:
            self._publish()

    def detach(self, meter: Meter) -> None:
        """A connection belongs to it no more."""
        if meter in self.meters:
            del self.meters[meter]
            self.usage.connected(-1)
            if self._counted:
                self._publish()

    def count(self, inward: bool, bytes_moved: int) -> None:
        """Add moved bytes to its usage."""
        self.usage.count(inward, bytes_moved)

    def room(self) -> int:
        """Bytes that may be moved now under the quota, the grace included."""
        return self.usage.room()

    def wait(self, wake: Wake) -> bool:
        """Call `wake` when the quota may have room again; False when it has some, or never will."""
        return self.usage.wait(wake)

    # --- the quota and time ---

    def _on_quota_reached(self) -> None:
        if not self._ending:
            self._ending = True
            self._loop.call_later(QUOTA_GRACE, self._end_exhausted)
        if self.usage.overrun >= GRACE_BYTES and self.meters:
            self._loop.call_soon(self._end_exhausted)

    def _end_exhausted(self) -> None:
        self._ending = False
        self.enforce(self.usage.wall())

    def roll(self, now: float) -> None:
        """Begin the next period when it is due, and end the connections of an account that has expired or closes."""
        self.usage.roll(now)
        if self.meters and (self.expired(now) or self._schedule is not None):
            self.enforce(now)

    @property
    def next_change(self) -> float | None:
        """When it expires, its period ends or its schedule closes, whichever comes first; None when none will."""
        now = self.usage.wall()
        end = self.spec.expires_at if self.spec.expires_at > now else None
        closes = self._window[1] if self._schedule is not None and self._in_schedule(self._schedule, now) else None
        return min((each for each in (end, self.usage.until, closes) if each is not None), default=None)

    def __repr__(self) -> str:
        return f"<Account {self.spec.username}, {self.usage!r}, {len(self.meters)} connections>"


def _destinations(spec: AccountSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return spec.allow_destinations, spec.deny_destinations


def _schedule_of(spec: AccountSpec) -> WeekSchedule | None:
    """When the account may be used; None: always. In a time zone that this machine doesn't know: never."""
    if spec.schedule is None:
        return None
    from zoneinfo import ZoneInfoNotFoundError  # only accounts with a schedule pay for time zones

    from actors.accounts.records import WeekSchedule

    try:
        return WeekSchedule(spec.schedule)
    except ZoneInfoNotFoundError as error:
        log.error("the account %s can't be used: its schedule is in an unknown time zone: %s", spec.username, error)
        return WeekSchedule(("UTC", ()))


REVOKED = "credential_revoked"


class Credential(Account):
    """Counts, expires and ends connections as an account does, with words of its own."""

    def refusal(self, client_ip: str, now: float, at: float = 0.0) -> Failure | None:
        """See `Account.refusal`."""
        if self.expired(at or now):
            return failures.CREDENTIAL_EXPIRED
        if self.spec.allow_clients and not self.may_come_from(client_ip):
            return failures.CREDENTIAL_NETWORK
        if self.usage.exhausted:
            return failures.CREDENTIAL_QUOTA
        return failures.QUOTA_UNAVAILABLE if self.usage.is_unavailable else None

    def admit(self, meter: Meter) -> Failure | None:
        """See `Account.admit`."""
        most = self.spec.limits.connections
        if meter.credential is not self and 0 < most <= self.connections:
            return failures.credential_connections(most)
        return None


def spec_of(record: CredentialRecord) -> AccountSpec:
    """What a credential allows, as of an account without a password."""
    return AccountSpec(
        id=record.id,
        username="",
        password_hash=None,
        limits=LimitsSpec(
            connections=record.max_connections, clients=record.clients, clients_window=record.clients_window
        ),
        quota=record.quota,
        expires_at=record.expires_at,
        allow_clients=record.allow_clients,
        allow_destinations=record.allow_destinations or (),
    )


GUEST = "guest"
"""Begins the key of a guest."""
GUESTS_MAX = 4096
"""Beyond that, those without connections are forgotten, the oldest first."""
REVIEWED_AT_ONCE = 8
"""Of the oldest, for each new one: however many are in use, a new one costs the same."""


class Guests:
    """By user name."""

    def __init__(self, loop: Loop, state: LiveState) -> None:
        self._loop = loop
        self._state = state
        self._usage = UsageCounters(loop)
        self._by_name: OrderedDict[str, Account] = OrderedDict()

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
            usage = self._usage.acquire(user)
            key_of = partial(self._key_of, user)
            self._by_name[user] = Account(self._loop, spec, time.time(), usage, key_of)
            return
        self._by_name.move_to_end(user)
        if known.spec != spec:
            known.update(spec, time.time())

    def _key_of(self, user: str, what: str) -> SharedKey:
        return self._state.key(GUEST, what, user)

    def _make_room(self) -> None:
        """Those in use that it meets go to the end, so the next review meets others."""
        for _ in range(REVIEWED_AT_ONCE):
            if len(self._by_name) < GUESTS_MAX:
                return
            user, guest = self._by_name.popitem(last=False)
            if guest.dormant:
                guest.release()
                self._usage.discard(user)
            else:
                self._by_name[user] = guest

    def __repr__(self) -> str:
        return f"<Guests: {len(self._by_name)}>"
