"""All limits of one proxy: its bandwidth, connections and requests of each client, and the accounts.

The limits of a client are those of its address, with IPv6 of its /64 (`client_key`). The limits of an account and of
its proxy both hold.

When accounts are next to be looked after: they expire, a period of their quota ends, their schedule closes. There is
one timer, for the earliest moment, and a heap of moments: with ten thousand credentials that expire one after the other
each costs the same few steps. It has each moment once, since the quotas of thousands of accounts may end together, and
nothing else, since it is made anew now and then: of ten thousand numbers in a millisecond.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from actors.bus.loop import Loop, Timer
from actors.bus.messages.specs import AccountSpec, LimitsSpec, ProxySpec
from actors.forwarding.limits.accounts import REMOVED, Account, Guests
from actors.forwarding.limits.accounts_in_use import AccountsInUse, UnreadableError
from actors.forwarding.limits.client_limits import ClientLimits, ClientWindows
from actors.forwarding.limits.meter import Meter, MeteredConnection
from actors.forwarding.limits.rule_limits import MatchedRuleLimits
from actors.forwarding.limits.shared_bandwidth import divide
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.forwarding.limits.usage import UsageCounters
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.net.client_key import client_key
from actors.state.counts import SharedKey
from actors.state.live_state import LiveState

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.forwarding.limits.workers import ProxyWorkers


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

    def __init__(self, loop: Loop, wall: Callable[[], float]) -> None:
        self._loop = loop
        self._wall = wall
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
        return self._wall() - self._loop.now

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
        seconds = min(max(self._timer_at - self._wall(), 0.0) + 0.001, ALARM_MAX)
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._wall()
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


PROXY: Final = "proxy"
"""Begins the key of what is limited of the proxy itself."""
CONNECTIONS: Final = "connections"
"""Begins the key of a client's connections."""
SHARED_CLIENTS: Final = 1024
"""Clients without connections that keep their place among the workers, since they may come again."""
REFUSED_IN_PROTOCOL: Final = frozenset(("https", "socks5", "mixed"))
"""Protocols that can send a reason only after a handshake: a client too many is accepted to get it."""


class LimitsOfProxy:
    """See the module. `configure` may be called at any time."""

    def __init__(self, loop: Loop, state: LiveState | None = None) -> None:
        self._loop = loop
        self._state = state = state or LiveState(lambda: loop.now)
        self._spec = LimitsSpec()
        self._protocol = ""
        self._inward = TokenBucket(loop, 0)
        self._outward = TokenBucket(loop, 0)
        self._clients = ClientWindows(loop, state)
        self._counts: dict[str, int] = {}
        self._shared_counts: dict[str, SharedKey] = {}
        """The same for other workers, where there are any."""
        self._counted: dict[MeteredConnection, str] = {}
        self._known: dict[str, Account] = {}
        self.accounts: dict[str, Account] = {}
        """By user name: those of the proxy itself, and those of the shared table that are in use."""
        self.usage = UsageCounters(loop, state)
        """What accounts and credentials use, by id."""
        self._alarms = Alarms(loop, self.usage.wall)
        self.in_use = AccountsInUse(loop, self.accounts, self._new_in_use, self._in_use_changed, self._release)
        self.in_use.on_poll = self._alarms.check_clock
        self.client_addresses = ClientLimits(loop)
        """Those that may use accounts and credentials."""
        self.guests = Guests(loop, state)
        """Users that are no accounts, with limits of their own."""
        self.rules = MatchedRuleLimits(loop, state)
        """Those of rules of policies."""
        self.active = False
        """Whether connections need a meter."""
        self.counts_clients = False
        """Whether the connections of each client are counted."""
        self.workers: ProxyWorkers | None = None
        """All workers of the proxy; None with one."""
        self.counts = False
        """Whether connections are counted at all: of clients, or of workers."""

    def share(self, workers: ProxyWorkers, open_now: int) -> None:
        """There are other workers from now on; so many connections are open here."""
        self.workers, self.counts = workers, True
        workers.set_open(open_now)
        for key, count in self._counts.items():
            self._publish(key, count)

    def _publish(self, key: str, count: int) -> None:
        """Let the other workers see the connections of a client."""
        if self.workers is None:
            return
        shared = self._shared_counts.get(key)
        if shared is None:
            shared = self._shared_counts[key] = self._state.key(CONNECTIONS, key)
        shared.set_connections(count)
        if not count and len(self._shared_counts) > SHARED_CLIENTS:
            shared.release()
            del self._shared_counts[key]

    def configure(self, spec: ProxySpec) -> Callable[[MeteredConnection], None] | None:
        """Take the limits of a configuration. Returns what is to be done with each open connection; None: nothing."""
        self._spec, self._protocol = spec.limits, spec.protocol
        self._inward.set_rate(spec.limits.bandwidth_in)
        self._outward.set_rate(spec.limits.bandwidth_out)
        divide(self._loop, partial(self._state.key, PROXY), self._inward, self._outward)
        self._configure_accounts(spec)
        self.active = bool(spec.accounts) or spec.limits != LimitsSpec()
        counts = spec.limits.connections > 0
        if not counts:
            for key in self._counts:
                self._publish(key, 0)
            self._counts.clear()
            self._counted.clear()
        self.counts_clients = counts
        self.counts = counts or self.workers is not None
        return self._limit_opened if self.active else None

    def _limit_opened(self, connection: MeteredConnection) -> None:
        """Attach a meter to a connection from before the first limit, which is billed to no account, and count it."""
        if self.active and connection.meter is None:
            connection.measure(Meter(self.admit_request, self._inward, self._outward))
        if self.counts_clients and connection not in self._counted:
            self.connection_opened(connection)

    def _configure_accounts(self, spec: ProxySpec) -> None:
        now = self.usage.wall()
        self.accounts.clear()
        self.accounts.update((each.username, self._account(each, now)) for each in spec.accounts)
        if spec.wants_credentials:  # else no account is needed any more, so connections of earlier ones may stay
            self._reconsider_in_use()
            for gone in self._known.keys() - {each.id for each in spec.accounts}:
                account = self._known.pop(gone)
                account.end_all(REMOVED)
                self._release(account)
        for each in self.accounts.values():
            self._alarms.watch(each)

    def _account(self, spec: AccountSpec, now: float) -> Account:
        """The known account, reconfigured, or a new one. Each is made once, since it counts for the whole process."""
        account = self._known.get(spec.id)
        if account is None:
            account = self._known[spec.id] = self._new_account(Account, spec, now)
        elif account.spec != spec:
            account.change(spec, now)
            self.client_addresses.include(account)
        return account

    def _reconsider_in_use(self) -> None:
        """Which accounts of the shared table may use the proxy depends on its tags and its own accounts."""
        try:
            self.in_use.changed(None)
        except UnreadableError:
            return  # they go on until the table can be read

    def _new_in_use(self, kind: type[Account], spec: AccountSpec) -> Account:
        return self._new_account(kind, spec, self.usage.wall())

    def _new_account(self, kind: type[Account], spec: AccountSpec, now: float) -> Account:
        key_of = partial(self._state.account, spec.id)
        return kind(self._loop, spec, now, self.usage.acquire(spec.id), key_of)

    def _in_use_changed(self, account: Account) -> None:
        self._alarms.watch(account)
        self.client_addresses.include(account)

    def _release(self, account: Account) -> None:
        """The account is in use no more."""
        self._alarms.forget(account)
        account.release()
        self.usage.release(account.spec.id)

    # --- connections ---

    def new_meter(self) -> Meter | None:
        """A meter for a connection; None when nothing is limited or counted."""
        return self.meter() if self.active else None

    def meter(self) -> Meter:
        """A meter for a connection that has to have one."""
        return Meter(self.admit_request, self._inward, self._outward)

    def client_refusal(self, client_ip: str) -> Failure | None:
        """Why this client may not have one more connection; None when it may."""
        limit = self._spec.connections
        if not limit or self._connections_of(client_key(client_ip)) < limit:
            return None
        return failures.client_connections(limit)

    def _connections_of(self, key: str) -> int:
        """Those of a client, with those of other workers."""
        own = self._counts.get(key, 0)
        if self.workers is None:
            return own
        shared = self._shared_counts.get(key) or self._state.key(CONNECTIONS, key)
        return own + shared.connections()

    def refuses_in_protocol(self, client_ip: str) -> bool:
        """Whether a refused client is accepted to get the reason: at most as often as it may have connections."""
        count = self._connections_of(client_key(client_ip))
        return self._protocol in REFUSED_IN_PROTOCOL and count < 2 * self._spec.connections

    def connection_added(self, connection: MeteredConnection, open_now: int) -> None:
        """A connection of the proxy has begun; with it so many are open in this process."""
        if self.workers is not None:
            self.workers.set_open(open_now)
        if self.counts_clients:
            self.connection_opened(connection)

    def connection_removed(self, connection: MeteredConnection, open_now: int) -> None:
        """It has ended, and so many are left."""
        if self.workers is not None:
            self.workers.set_open(open_now)
        if self.counts_clients:
            self.connection_closed(connection)

    def connection_opened(self, connection: MeteredConnection) -> None:
        """Count a connection, also one whose client's address has turned out to be another."""
        self.connection_closed(connection)
        key = client_key(connection.client_ip)
        self._counted[connection] = key
        count = self._counts[key] = self._counts.get(key, 0) + 1
        self._publish(key, count)

    def connection_closed(self, connection: MeteredConnection) -> None:
        """Count it no more: it has ended."""
        key = self._counted.pop(connection, None)
        if key is not None:
            left = self._counts[key] - 1
            if left:
                self._counts[key] = left
            else:
                del self._counts[key]
            self._publish(key, left)

    # --- requests ---

    def user_refusal(self, user: str, client_ip: str, at: float = 0.0) -> Failure | None:
        """Why the account of this name may not be used at a time (0: now); None when it may, or is none. Raises
        `UnreadableError`."""
        account = self.account(user)
        if account is None:
            return None
        failure = account.refusal(client_ip, self.usage.wall(), at)
        return failure or self.client_addresses.refusal(account, None, client_ip)

    def credential_refusal(
        self, user: str, record: CredentialRecord, client_ip: str, at: float = 0.0
    ) -> Failure | None:
        """Why this credential of the account may not be used at a time (0: now); None when it may. Raises
        `UnreadableError`."""
        account, credential = self.account(user), self.in_use.credential(record)
        failure = credential.refusal(client_ip, self.usage.wall(), at)
        if failure is None and account is not None:
            failure = self.client_addresses.refusal(account, credential, client_ip)
        return failure

    def account(self, user: str) -> Account | None:
        """The account of this name; None when it is none. Raises `UnreadableError`."""
        known = self.accounts.get(user)
        if known is not None and self.in_use.outdated:
            self.in_use.bring_up_to_date(known.spec.id)
            known = self.accounts.get(user)
        return known or (self.in_use.account(user) or self.guests.get(user) if user else None)

    def admit_request(
        self, meter: Meter, user: str, holder: MeteredConnection, record: CredentialRecord | None
    ) -> Failure | None:
        """Count a request and attach its connection to the account. Returns why it is refused, else None."""
        credential = None
        try:
            account = self.account(user)
            if account is not None and record is not None:
                credential = self.in_use.credential(record)
        except UnreadableError:
            return failures.ACCOUNTS_UNAVAILABLE
        if account is not None:
            now, client_ip = self.usage.wall(), holder.client_ip
            account.usage.requested(client_ip)
            failure = account.refusal(client_ip, now)
            if credential is not None and failure is None:
                credential.usage.requested(client_ip)
                failure = credential.refusal(client_ip, now) or credential.admit(meter)
            failure = failure or self.client_addresses.refusal(account, credential, client_ip) or account.admit(meter)
            if failure is not None:
                return failure
            if account.spec.schedule is not None:
                self._alarms.watch(account)
        limit = self._spec.requests_per_minute
        if limit:
            wait = self._clients.window(holder.client_ip).try_acquire(limit)
            if wait:
                return failures.client_requests(limit, wait)
        if account is not None:  # behind all other limits: what they refuse is no use of the account
            failure = self.client_addresses.admit(account, credential, holder.client_ip)
            if failure is not None:
                return failure
        if meter.attach(account, holder, credential):
            self.client_addresses.follow(meter)
        return None

    def count_refusal(self, user: str) -> None:
        """Count a refused request, or an ended connection, of this user."""
        account = self.accounts.get(user)
        if account is not None:
            account.usage.refused()
