"""All limits of one proxy: its bandwidth, connections and requests of each client, and the accounts.

The limits of a client are those of its address, with IPv6 of its /64 (`client_key`). The limits of an account and of
its proxy both hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec, LimitsSpec, ProxySpec
from actors.forwarding.limits.accounts import REMOVED, Account
from actors.forwarding.limits.alarms import Alarms
from actors.forwarding.limits.client_windows import CLIENT, ClientWindows
from actors.forwarding.limits.former_windows import FormerWindows, Key
from actors.forwarding.limits.guests import Guests
from actors.forwarding.limits.held_accounts import HeldAccounts, UnreadableError
from actors.forwarding.limits.meter import Meter, MeteredConnection
from actors.forwarding.limits.rule_limits import RuleLimits
from actors.forwarding.limits.sliding_window import SlidingWindow
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.forwarding.limits.usage_counters import UsageCounters
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.net.client_key import client_key

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.forwarding.limits.elsewhere import Elsewhere

PROXY: Final = "proxy"
ACCOUNT: Final = "account"
"""Begins the key of an account's window."""
REFUSED_IN_PROTOCOL: Final = frozenset(("https", "socks5", "mixed"))
"""Protocols that can send a reason only after a handshake: a client too many is accepted to get it."""


class Limits:
    """See the module. `configure` may be called at any time."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._spec = LimitsSpec()
        self._protocol = ""
        self._inward = TokenBucket(loop, 0)
        self._outward = TokenBucket(loop, 0)
        self.former = FormerWindows(loop)
        """Requests that count from before a sleep."""
        self._clients = ClientWindows(loop, self.former)
        self._counts: dict[str, int] = {}
        self._counted: dict[MeteredConnection, str] = {}
        self._known: dict[str, Account] = {}
        self.accounts: dict[str, Account] = {}
        """By user name: those of the proxy itself, and those of the shared table that are held."""
        self.usage = UsageCounters(loop)
        """What accounts and credentials use, by id."""
        self._alarms = Alarms(loop)
        self.held = HeldAccounts(loop, self.accounts, self._new_held, self._alarms.watch, self._release)
        self.held.on_poll = self._alarms.check_clock
        self.guests = Guests(loop, self.former)
        """Users that are no accounts, with limits of their own."""
        self.rules = RuleLimits(loop, self.former)
        """Those of rules of policies."""
        self.active = False
        """Whether connections need a meter."""
        self.counts_clients = False
        """Whether the connections of each client are counted."""
        self.elsewhere: Elsewhere | None = None
        """The other workers of the proxy; None with one worker."""
        self.counts = False
        """Whether connections are counted at all: of clients, or of workers."""

    def share(self, elsewhere: Elsewhere, open_now: int) -> None:
        """Count together with other workers from now on; so many connections are open here."""
        self.elsewhere, self.counts = elsewhere, True
        elsewhere.set_open(open_now)
        elsewhere.key(PROXY).divide(self._inward, self._outward)
        for key, count in self._counts.items():
            elsewhere.key(CLIENT, key).set_connections(count)
        self._clients.share(elsewhere)
        for account in (*self._known.values(), *self.held):
            self._share_account(account)
        self.usage.share(elsewhere)
        self.guests.share(elsewhere)
        self.rules.share(elsewhere)
        for former, window in self.former.take():
            elsewhere.key(*former).window(window)  # at once, since another worker may be the first that needs it

    def _share_account(self, account: Account) -> Account:
        if self.elsewhere is not None:
            account.share(self.elsewhere.key(ACCOUNT, account.spec.id))
        return account

    def configure(self, spec: ProxySpec) -> Callable[[MeteredConnection], None] | None:
        """Take the limits of a configuration. Returns what is to be done with each open connection; None: nothing."""
        self._spec, self._protocol = spec.limits, spec.protocol
        self._inward.set_rate(spec.limits.bandwidth_in)
        self._outward.set_rate(spec.limits.bandwidth_out)
        if self.elsewhere is not None:
            self.elsewhere.key(PROXY).divide(self._inward, self._outward)
        self._configure_accounts(spec)
        self.active = bool(spec.accounts) or spec.limits != LimitsSpec()
        counts = spec.limits.connections > 0
        if not counts:
            if self.elsewhere is not None:
                for key in self._counts:
                    self.elsewhere.key(CLIENT, key).set_connections(0)
            self._counts.clear()
            self._counted.clear()
        self.counts_clients = counts
        self.counts = counts or self.elsewhere is not None
        return self._limit_opened if self.active else None

    def _limit_opened(self, connection: MeteredConnection) -> None:
        """Attach a meter to a connection from before the first limit, which is billed to no account, and count it."""
        if self.active and connection.meter is None:
            connection.measure(Meter(self.admit_request, self._inward, self._outward))
        if self.counts_clients and connection not in self._counted:
            self.connection_opened(connection)

    def _configure_accounts(self, spec: ProxySpec) -> None:
        now = time.time()
        self.accounts.clear()
        self.accounts.update((each.username, self._account(each, now)) for each in spec.accounts)
        if spec.wants_credentials:  # else no account is needed any more, so connections of former ones may stay
            self._reconsider_held()
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
            window = self.former.new(ACCOUNT, spec.id)
            account = Account(self._loop, spec, now, self.usage.acquire(spec.id), window)
            self._known[spec.id] = self._share_account(account)
        elif account.spec != spec:
            account.change(spec, now)
        return account

    def _reconsider_held(self) -> None:
        """Which accounts of the shared table may use the proxy depends on its tags and its own accounts."""
        try:
            self.held.changed(None)
        except UnreadableError:
            return  # they go on until the table can be read

    def _new_held(self, kind: type[Account], spec: AccountSpec) -> Account:
        window = self.former.new(ACCOUNT, spec.id)
        return self._share_account(kind(self._loop, spec, time.time(), self.usage.acquire(spec.id), window))

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
        return own if self.elsewhere is None else own + self.elsewhere.key(CLIENT, key).connections()

    def refuses_in_protocol(self, client_ip: str) -> bool:
        """Whether a refused client is accepted to get the reason: at most as often as it may have connections."""
        count = self._connections_of(client_key(client_ip))
        return self._protocol in REFUSED_IN_PROTOCOL and count < 2 * self._spec.connections

    def connection_added(self, connection: MeteredConnection, open_now: int) -> None:
        """A connection of the proxy has begun; with it so many are open in this process."""
        if self.elsewhere is not None:
            self.elsewhere.set_open(open_now)
        if self.counts_clients:
            self.connection_opened(connection)

    def connection_removed(self, connection: MeteredConnection, open_now: int) -> None:
        """It has ended, and so many are left."""
        if self.elsewhere is not None:
            self.elsewhere.set_open(open_now)
        if self.counts_clients:
            self.connection_closed(connection)

    def connection_opened(self, connection: MeteredConnection) -> None:
        """Count a connection, also one whose client's address has turned out to be another."""
        self.connection_closed(connection)
        key = client_key(connection.client_ip)
        self._counted[connection] = key
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if self.elsewhere is not None:
            self.elsewhere.key(CLIENT, key).set_connections(count)

    def connection_closed(self, connection: MeteredConnection) -> None:
        """Count it no more: it has ended."""
        key = self._counted.pop(connection, None)
        if key is not None:
            left = self._counts[key] - 1
            if left:
                self._counts[key] = left
            else:
                del self._counts[key]
            if self.elsewhere is not None:
                self.elsewhere.key(CLIENT, key).set_connections(left)

    # --- requests ---

    def user_refusal(self, user: str, client_ip: str) -> Failure | None:
        """Why the account of this name may not be used; None when it may, or is none. Raises `UnreadableError`."""
        account = self.account(user)
        return None if account is None else account.refusal(client_ip, time.time())

    def credential_refusal(self, record: CredentialRecord, client_ip: str) -> Failure | None:
        """Why this credential may not be used; None when it may. Raises `UnreadableError`."""
        return self.held.credential(record).refusal(client_ip, time.time())

    def account(self, user: str) -> Account | None:
        """The account of this name; None when it is none. Raises `UnreadableError`."""
        known = self.accounts.get(user)
        if known is not None and self.held.outdated:
            self.held.bring_up_to_date(known.spec.id)
            known = self.accounts.get(user)
        return known or (self.held.account(user) or self.guests.get(user) if user else None)

    def admit_request(
        self, meter: Meter, user: str, holder: MeteredConnection, record: CredentialRecord | None
    ) -> Failure | None:
        """Count a request and attach its connection to the account. Returns why it is refused, else None."""
        credential = None
        try:
            account = self.account(user)
            if account is not None and record is not None:
                credential = self.held.credential(record)
        except UnreadableError:
            return failures.ACCOUNTS_UNAVAILABLE
        if account is not None:
            now, client_ip = time.time(), holder.client_ip
            account.usage.requested(client_ip)
            failure = account.refusal(client_ip, now)
            if credential is not None and failure is None:
                credential.usage.requested(client_ip)
                failure = credential.refusal(client_ip, now) or credential.admit(meter)
            failure = failure or account.admit(meter)
            if failure is not None:
                return failure
            if account.spec.schedule is not None:
                self._alarms.watch(account)
        limit = self._spec.requests_per_minute
        if limit:
            wait = self._clients.window(holder.client_ip).try_acquire(limit, self._loop.now)
            if wait:
                return failures.client_requests(limit, wait)
        meter.attach(account, holder, credential)
        return None

    def count_refusal(self, user: str) -> None:
        """Count a refused request, or an ended connection, of this user."""
        account = self.accounts.get(user)
        if account is not None:
            account.usage.refused()

    def windows(self) -> Iterator[tuple[Key, SlidingWindow]]:
        """All windows in which requests are counted, by key."""
        yield from self._clients.windows()
        for key, account in self._known.items():
            yield (ACCOUNT, key), account.window
        for account in self.held:
            yield (ACCOUNT, account.spec.id), account.window
        yield from self.guests.windows()
        yield from self.rules.windows()
