"""All limits of one proxy: its bandwidth, connections and requests of each client, and the accounts.

The limits of a client are those of its address, with IPv6 of its /64 (`client_key`). The limits of an account and of
its proxy both hold.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.bus.messages.specs import AccountSpec, LimitsSpec, ProxySpec
from actors.forwarding.limits.accounts import REMOVED, Account
from actors.forwarding.limits.alarms import Alarms
from actors.forwarding.limits.guests import Guests
from actors.forwarding.limits.held_accounts import HeldAccounts, UnreadableError
from actors.forwarding.limits.meter import Meter, MeteredConnection
from actors.forwarding.limits.sliding_window import MINUTE, SlidingWindow
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.forwarding.limits.usage import UsageCounters
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.net.client_key import client_key

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord

REFUSED_IN_PROTOCOL = frozenset(("https", "socks5", "mixed"))
"""Protocols that can send a reason only after a handshake: a client too many is accepted to get it."""


class Limits:
    """See the module. `configure` may be called at any time."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._spec = LimitsSpec()
        self._protocol = ""
        self._inward = TokenBucket(loop, 0)
        self._outward = TokenBucket(loop, 0)
        self._clients: dict[str, SlidingWindow] = {}
        self._pruned = loop.now
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
        self.guests = Guests(loop)
        """Users that are no accounts, with limits of their own."""
        self.active = False
        """Whether connections need a meter."""
        self.counts_clients = False
        """Whether the connections of each client are counted."""

    def configure(self, spec: ProxySpec, open_now: Iterable[MeteredConnection]) -> None:
        """Take the limits of a configuration. `open_now` are the connections that are open."""
        self._spec, self._protocol = spec.limits, spec.protocol
        self._inward.set_rate(spec.limits.bandwidth_in)
        self._outward.set_rate(spec.limits.bandwidth_out)
        self._configure_accounts(spec)
        self.active = bool(spec.accounts) or spec.limits != LimitsSpec()
        self._measure(open_now)
        counts = spec.limits.connections > 0
        if counts and not self.counts_clients:
            for connection in open_now:
                self.connection_opened(connection)
        elif not counts:
            self._counts.clear()
            self._counted.clear()
        self.counts_clients = counts

    def _measure(self, open_now: Iterable[MeteredConnection]) -> None:
        """Attach meters to connections from before the first limit. They are billed to no account."""
        for connection in open_now if self.active else ():
            if connection.meter is None:
                connection.measure(Meter(self.admit_request, self._inward, self._outward))

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
            account = self._known[spec.id] = Account(self._loop, spec, now, self.usage.acquire(spec.id))
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
        return kind(self._loop, spec, time.time(), self.usage.acquire(spec.id))

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
        if not limit or self._counts.get(client_key(client_ip), 0) < limit:
            return None
        return failures.client_connections(limit)

    def refuses_in_protocol(self, client_ip: str) -> bool:
        """Whether a refused client is accepted to get the reason: at most as often as it may have connections."""
        count = self._counts.get(client_key(client_ip), 0)
        return self._protocol in REFUSED_IN_PROTOCOL and count < 2 * self._spec.connections

    def connection_opened(self, connection: MeteredConnection) -> None:
        """Count a connection, also one whose client's address has turned out to be another."""
        self.connection_closed(connection)
        key = client_key(connection.client_ip)
        self._counted[connection] = key
        self._counts[key] = self._counts.get(key, 0) + 1

    def connection_closed(self, connection: MeteredConnection) -> None:
        """Count it no more: it has ended."""
        key = self._counted.pop(connection, None)
        if key is not None:
            left = self._counts[key] - 1
            if left:
                self._counts[key] = left
            else:
                del self._counts[key]

    # --- requests ---

    def user_refusal(self, user: str, client_ip: str) -> Failure | None:
        """Why the account of this name may not be used; None when it may, or is none. Raises `UnreadableError`."""
        account = self.account(user)
        return None if account is None else account.refusal(client_ip, time.time())

    def credential_refusal(self, record: CredentialRecord, client_ip: str) -> Failure | None:
        """Why this credential may not be used; None when it may."""
        return self.held.credential(record).refusal(client_ip, time.time())

    def account(self, user: str) -> Account | None:
        """The account of this name; None when it is none. Raises `UnreadableError`."""
        return self.accounts.get(user) or (self.held.account(user) or self.guests.get(user) if user else None)

    def admit_request(
        self, meter: Meter, user: str, holder: MeteredConnection, record: CredentialRecord | None
    ) -> Failure | None:
        """Count a request and attach its connection to the account. Returns why it is refused, else None."""
        try:
            account = self.account(user)
        except UnreadableError:
            return failures.ACCOUNTS_UNAVAILABLE
        credential = None
        if account is not None:
            now, client_ip = time.time(), holder.client_ip
            account.usage.requested(client_ip)
            failure = account.refusal(client_ip, now)
            if record is not None and failure is None:
                credential = self.held.credential(record)
                credential.usage.requested(client_ip)
                failure = credential.refusal(client_ip, now) or credential.admit(meter)
            failure = failure or account.admit(meter)
            if failure is not None:
                return failure
            if account.spec.schedule is not None:
                self._alarms.watch(account)
        limit = self._spec.requests_per_minute
        if limit:
            wait = self._window(holder.client_ip).try_acquire(limit, self._loop.now)
            if wait:
                return failures.client_requests(limit, wait)
        meter.attach(account, holder, credential)
        return None

    def count_refusal(self, user: str) -> None:
        """Count a refused request, or an ended connection, of this user."""
        account = self.accounts.get(user)
        if account is not None:
            account.usage.refused()

    def _window(self, client_ip: str) -> SlidingWindow:
        key, now = client_key(client_ip), self._loop.now
        if now - self._pruned > MINUTE:
            self._pruned = now
            self._clients = {each: window for each, window in self._clients.items() if not window.idle(now)}
        window = self._clients.get(key)
        if window is None:
            window = self._clients[key] = SlidingWindow(now)
        return window
