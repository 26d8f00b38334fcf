"""One direction of a connection under limits: how many bytes may move now, and who pays for those that have moved.

A direction draws on the token bucket of the whole proxy and, once it belongs to an account, on that of the account;
during a request that rules of policies limit, on theirs.
"""

from __future__ import annotations

from typing import Protocol

from actors.forwarding.limits.token_bucket import UNLIMITED, TokenBucket, Wake


class Billing(Protocol):
    """An account, as far as a throttle needs it."""

    def bucket(self, inward: bool) -> TokenBucket:
        """The bucket of one direction."""

    def room(self) -> int:
        """Bytes that may still be moved under the quota."""

    def wait(self, wake: Wake) -> bool:
        """Call `wake` when the quota may have room again; False when that isn't what a connection waits for."""

    def count(self, inward: bool, bytes_moved: int) -> None:
        """Add bytes to the account's usage."""


class Throttle:
    """One direction of a connection. Ask for what is `available` before moving bytes and `consume` what has moved.

    A share of 0 means: read nothing, and `wait` to be called when there is one.
    """

    __slots__ = ("_billing", "_buckets", "_further", "_inward", "_shared", "_wake", "unattributed", "waiting")

    def __init__(self, inward: bool, shared: TokenBucket) -> None:
        """`shared` is the bucket of the whole proxy."""
        self._inward = inward
        self._shared = shared
        self._buckets: tuple[TokenBucket, ...] = (shared,)
        self._further: tuple[TokenBucket, ...] = ()
        self._billing: Billing | None = None
        self.unattributed = 0
        """Bytes that moved before the account was known."""
        self.waiting = False
        self._wake: Wake | None = None

    def attach(self, billing: Billing | None) -> None:
        """Bill what moves from now on, and what is still unattributed, to this account; None: to no account."""
        self._billing = billing
        self._draw()
        if billing is not None:
            billing.count(self._inward, self.unattributed)
            self.unattributed = 0

    def draw_on(self, buckets: tuple[TokenBucket, ...]) -> None:
        """Draw on these as well, in place of those that were named before."""
        self._further = buckets
        self._draw()

    def _draw(self) -> None:
        account = () if self._billing is None else (self._billing.bucket(self._inward),)
        self._buckets = (*account, self._shared, *self._further)

    def available(self) -> int:
        """Bytes that may move now."""
        least = UNLIMITED if self._billing is None else self._billing.room()
        for bucket in self._buckets:
            share = bucket.available()
            if share < least:
                least = share
        return least

    def consume(self, count: int) -> None:
        """Take tokens for bytes that have moved, and bill them."""
        for bucket in self._buckets:
            bucket.consume(count)
        if self._billing is None:
            self.unattributed += count
        else:
            self._billing.count(self._inward, count)

    def wait(self, wake: Wake) -> None:
        """Call `wake` once there may be a share; it replaces a callback that waits already.

        There is one place in the queue, which the last caller has: a tunnel, where its connection waited before.
        """
        self._wake = wake
        if self.waiting:
            return

        def woken() -> None:
            self.waiting = False
            last, self._wake = self._wake, None
            if last is not None:
                last()

        self.waiting = True
        if self._billing is None or not self._billing.wait(woken):
            short = next((bucket for bucket in self._buckets if not bucket.available()), self._buckets[0])
            short.wait(woken)

    def close(self) -> None:
        """Drop the callback, since the connection has ended; its place in the queue stays and wakes nothing."""
        self._wake = None
