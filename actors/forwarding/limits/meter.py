"""What one connection may move and has moved: a throttle for each direction, and the account that is billed.

A connection of a proxy without limits and accounts has no meter, and pays for one look-up of an attribute. Bytes that
came before the client authenticated, such as the head with its credentials, are billed once the account is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from actors.forwarding.limits.throttle import Billing, Throttle
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.forwarding.protocols.failures import Failure


class MeteredAccount(Billing, Protocol):
    """An account, as far as a meter needs it."""

    meters: dict[Meter, None]
    """Those of the account's open connections."""


class MeteredConnection(Protocol):
    """A client connection or what it has become, as far as limits need it."""

    client_ip: str
    meter: Meter | None
    """None where nothing is limited or counted."""

    def measure(self, meter: Meter) -> None:
        """Use this meter for what moves from now on: the connection has come to be limited."""

    def end(self, reason: str) -> None:
        """End it now; `reason` is for its record."""


Admit = Callable[["Meter", str, MeteredConnection], Failure | None]
"""Counts a request of this user on this connection and attaches the meter to the account, or says why not."""


class Meter:
    """Both directions of one connection, and the account that it belongs to at present."""

    __slots__ = ("_admit", "account", "admitted", "holder", "inward", "outward", "refusal")

    def __init__(self, admit: Admit, inward: TokenBucket, outward: TokenBucket) -> None:
        self._admit = admit
        self.inward = Throttle(True, inward)
        self.outward = Throttle(False, outward)
        self.account: MeteredAccount | None = None
        self.holder: MeteredConnection | None = None
        self.admitted = False
        """Whether the current request is counted already: it may be sent twice."""
        self.refusal: Failure | None = None
        """Refuses every request: the connection was one too many of its client."""

    def admit(self, user: str, holder: MeteredConnection) -> Failure | None:
        """Count a request of `user` (empty: no user), once. Returns why it is refused, else None."""
        if self.admitted:
            return None
        failure = self.refusal or self._admit(self, user, holder)
        self.admitted = failure is None
        return failure

    def exchange_over(self) -> None:
        """Let the next request be admitted by itself."""
        self.admitted = False

    def attach(self, account: MeteredAccount | None, holder: MeteredConnection) -> None:
        """Bill the connection to this account from now on; None: to no account."""
        self.holder = holder
        if account is self.account:
            return
        self.detach()
        self.account = account
        if account is not None:
            account.meters[self] = None
        self.inward.attach(account)
        self.outward.attach(account)

    def close(self) -> None:
        """Hold the ended connection no longer, though a throttle may still stand in the queue of a bucket."""
        self.detach()
        self.holder = None
        self.inward.close()
        self.outward.close()

    def detach(self) -> None:
        """Remove the connection from its account."""
        if self.account is not None:
            self.account.meters.pop(self, None)

    @property
    def waiting(self) -> bool:
        """True while the connection stands still because of a limit."""
        return self.inward.waiting or self.outward.waiting
