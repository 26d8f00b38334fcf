"""What one connection may move and has moved: its share of the buckets, and the account that its bytes are counted on.

A connection of a proxy without limits and accounts has no meter, and pays for a look at an attribute. Bytes that came
before the client said who it is, such as the head with its credentials, are counted on the account once it is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from actors.forwarding.limits.token_bucket import UNLIMITED, Bucket, Wake
from actors.forwarding.protocols.failures import Failure

if TYPE_CHECKING:
    from actors.forwarding.limits.accounts import Account
    from actors.forwarding.limits.limits import Limits


class Holder(Protocol):
    """A connection, or the tunnel that it has become."""

    client_ip: str

    def end(self, reason: str) -> None:
        """End it now."""


class Gate:
    """One direction of a connection. Ask for a `share` before moving bytes and `spend` what has moved.

    A share of 0 means: read nothing, and `wait` to be called when there is one.
    """

    __slots__ = ("_buckets", "_inward", "_shared", "_wake", "account", "unclaimed", "waiting")

    def __init__(self, inward: bool, shared: Bucket) -> None:
        """`shared` is the bucket of the whole proxy."""
        self._inward = inward
        self._shared = shared
        self._buckets: tuple[Bucket, ...] = (shared,)
        self.account: Account | None = None
        self.unclaimed = 0
        self.waiting = False
        self._wake: Wake | None = None

    def bind(self, account: Account | None) -> None:
        """From now on bytes are those of `account`, with what nobody has claimed yet."""
        self.account = account
        self._buckets = (self._shared,) if account is None else (account.bucket(self._inward), self._shared)
        if account is not None:
            account.count(self._inward, self.unclaimed)
            self.unclaimed = 0

    def share(self) -> int:
        """How many bytes may move now."""
        least = UNLIMITED if self.account is None else self.account.room()
        for bucket in self._buckets:
            share = bucket.share()
            if share < least:
                least = share
        return least

    def spend(self, count: int) -> None:
        """So many bytes have moved."""
        for bucket in self._buckets:
            bucket.spend(count)
        if self.account is None:
            self.unclaimed += count
        else:
            self.account.count(self._inward, count)

    def wait(self, wake: Wake) -> None:
        """Have `wake` called when there may be a share, in place of who waits already.

        There is one place in the queue. The last who asked has it: a tunnel, where its connection waited before.
        """
        self._wake = wake
        if self.waiting:
            return
        short = next((bucket for bucket in self._buckets if not bucket.share()), self._buckets[0])

        def woken() -> None:
            self.waiting = False
            last, self._wake = self._wake, None
            if last is not None:
                last()

        self.waiting = True
        short.wait(woken)

    def close(self) -> None:
        """Its connection has ended; the place in the queue stays and wakes nothing."""
        self._wake = None


class Meter:
    """Both directions of one connection, and the account that it belongs to at present."""

    __slots__ = ("_limits", "account", "admitted", "holder", "inward", "outward", "refusal")

    def __init__(self, limits: Limits, inward: Bucket, outward: Bucket) -> None:
        self._limits = limits
        self.inward = Gate(True, inward)
        self.outward = Gate(False, outward)
        self.account: Account | None = None
        self.holder: Holder | None = None
        self.admitted = False
        """Whether the request that is under way was counted already: it may be sent twice."""
        self.refusal: Failure | None = None
        """What every request on this connection hears: it came as one too many."""

    def admit(self, user: str, holder: Holder) -> Failure | None:
        """A request of `user` (empty for anybody): what speaks against it, else it is counted."""
        if self.admitted:
            return None
        failure = self.refusal or self._limits.admit_request(self, user, holder)
        self.admitted = failure is None
        return failure

    def exchange_over(self) -> None:
        """The next request is another one."""
        self.admitted = False

    def bind(self, account: Account | None, holder: Holder) -> None:
        """The connection is this account's from now on; None: nobody's."""
        self.holder = holder
        if account is self.account:
            return
        self.leave()
        self.account = account
        if account is not None:
            account.meters[self] = None
        self.inward.bind(account)
        self.outward.bind(account)

    def close(self) -> None:
        """The connection has ended: hold it no longer, though a gate may wait in the queue of a bucket."""
        self.leave()
        self.holder = None
        self.inward.close()
        self.outward.close()

    def leave(self) -> None:
        """The connection is gone, or another's."""
        if self.account is not None:
            self.account.meters.pop(self, None)

    @property
    def waiting(self) -> bool:
        """Does it stand still because of a limit?"""
        return self.inward.waiting or self.outward.waiting
