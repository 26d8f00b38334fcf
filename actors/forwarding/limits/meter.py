"""What one connection may move and has moved: a throttle for each direction, and the account that is billed.

A connection of a proxy without limits and accounts has no meter, and pays for one look-up of an attribute. Bytes that
came before the client authenticated, such as the head with its credentials, are billed once the account is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from actors.forwarding.limits.token_bucket import Billing, Throttle, TokenBucket, Wake
from actors.forwarding.protocols.failures import Failure

if TYPE_CHECKING:
    from actors.accounts.records import CredentialRecord
    from actors.bus.messages.specs import AccountSpec


class MeteredAccount(Billing, Protocol):
    """An account or a credential, as far as a meter needs it."""

    spec: AccountSpec

    def attach(self, meter: Meter) -> None:
        """A connection belongs to it from now on."""

    def detach(self, meter: Meter) -> None:
        """A connection belongs to it no more."""


class RuleBound(Protocol):
    """What limits requests beside accounts: a rule of a policy."""

    inward: TokenBucket
    outward: TokenBucket

    def attach(self, meter: Meter) -> None:
        """A request of this connection is under way."""

    def detach(self, meter: Meter) -> None:
        """It is over."""


class MeteredConnection(Protocol):
    """A client connection or what it has become, as far as limits need it."""

    client_ip: str
    meter: Meter | None
    """None where nothing is limited or counted."""

    def measure(self, meter: Meter) -> None:
        """Use this meter for what moves from now on: the connection has come to be limited."""

    def end(self, reason: str) -> None:
        """End it now; `reason` is for its record."""

    def destinations_changed(self) -> None:
        """Its account or credential allows other destinations now: end it if it goes where it no longer may."""


Admit = Callable[["Meter", str, MeteredConnection, "CredentialRecord | None"], Failure | None]
"""Counts a request of this user on this connection and attaches the meter to the account, or says why not."""


class _Both:
    """Bills an account and a credential of it."""

    __slots__ = ("_account", "_credential")

    def __init__(self, account: Billing, credential: Billing) -> None:
        self._account = account
        self._credential = credential

    def bucket(self, inward: bool) -> TokenBucket:
        """See `Billing`: a credential has no bandwidth of its own."""
        return self._account.bucket(inward)

    def room(self) -> int:
        """See `Billing`."""
        return min(self._account.room(), self._credential.room())

    def wait(self, wake: Wake) -> bool:
        """See `Billing`."""
        return self._account.wait(wake) or self._credential.wait(wake)

    def count(self, inward: bool, bytes_moved: int) -> None:
        """See `Billing`."""
        self._account.count(inward, bytes_moved)
        self._credential.count(inward, bytes_moved)


class Meter:
    """Both directions of one connection, and the account that it belongs to at present."""

    __slots__ = (
        "_admit",
        "account",
        "admitted",
        "by_name",
        "certificate",
        "credential",
        "followed",
        "holder",
        "inward",
        "outward",
        "refusal",
        "rules",
    )

    def __init__(self, admit: Admit, inward: TokenBucket, outward: TokenBucket) -> None:
        self._admit = admit
        self.inward = Throttle(True, inward)
        self.outward = Throttle(False, outward)
        self.account: MeteredAccount | None = None
        self.credential: MeteredAccount | None = None
        """The credential of the account that the last request was authenticated by."""
        self.certificate: tuple[str, ...] | None = None
        """The entries of the client's certificate, if that has authenticated the last request."""
        self.by_name = False
        """Whether the user name alone has authenticated the last request, as on SOCKS4."""
        self.holder: MeteredConnection | None = None
        self.followed: tuple[str, ...] = ()
        """The accounts and credentials of which it says that its address is in use."""
        self.admitted = False
        """Whether the current request is counted already: it may be sent twice."""
        self.refusal: Failure | None = None
        """Refuses every request: the connection was one too many of its client."""
        self.rules: tuple[RuleBound, ...] = ()
        """The rules of policies that limit the request under way."""

    def admit(self, user: str, holder: MeteredConnection, credential: CredentialRecord | None = None) -> Failure | None:
        """Count a request of `user` (empty: no user), once. Returns why it is refused, else None."""
        if self.admitted:
            return None
        failure = self.refusal or self._admit(self, user, holder, credential)
        self.admitted = failure is None
        return failure

    def exchange_over(self) -> None:
        """Let the next request be admitted by itself."""
        self.admitted = False
        if self.rules:
            self.limit_by(())

    def limit_by(self, rules: tuple[RuleBound, ...]) -> None:
        """Limit the request under way by these rules alone."""
        for rule in self.rules:
            rule.detach(self)
        for rule in rules:
            rule.attach(self)
        self.rules = rules
        self.inward.draw_on(tuple(rule.inward for rule in rules))
        self.outward.draw_on(tuple(rule.outward for rule in rules))

    def attach(
        self, account: MeteredAccount | None, holder: MeteredConnection, credential: MeteredAccount | None = None
    ) -> bool:
        """Bill the connection to this account and credential from now on; None: to no account, to no credential.

        Returns whether they are others than before.
        """
        self.holder = holder
        if account is self.account and credential is self.credential:
            return False
        self.detach()
        self.account, self.credential = account, credential
        billing: Billing | None = account
        if account is not None:
            account.attach(self)
            if credential is not None:
                credential.attach(self)
                billing = _Both(account, credential)
        self.inward.attach(billing)
        self.outward.attach(billing)
        return True

    def follow(self, moved: Wake | None) -> None:
        """Call this whenever bytes of the connection have moved; None: call nothing."""
        self.inward.follow(moved)
        self.outward.follow(moved)

    def close(self) -> None:
        """Hold the ended connection no longer, though a throttle may still stand in the queue of a bucket."""
        self.detach()
        if self.rules:
            self.limit_by(())
        self.holder = None
        self.inward.close()
        self.outward.close()

    def detach(self) -> None:
        """Remove the connection from its account and credential."""
        if self.account is not None:
            self.account.detach(self)
        if self.credential is not None:
            self.credential.detach(self)

    @property
    def waiting(self) -> bool:
        """True while the connection stands still because of a limit."""
        return self.inward.waiting or self.outward.waiting


def account_of(meter: Meter | None) -> AccountSpec | None:
    """The account that a connection with this meter belongs to at present."""
    return None if meter is None or meter.account is None else meter.account.spec
