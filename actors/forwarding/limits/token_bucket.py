"""Bandwidth as a token bucket: so many bytes a second, smoothly, for all who share it.

A byte that moves consumes a token; tokens grow with time, up to those of `BURST` seconds. A connection that finds too
few does not poll: it waits in a queue, reads nothing in the meantime (so the kernel slows the sender down), and is
woken by one timer for the whole bucket, first come first served. While others wait, a connection gets only a share of
the tokens, so that all flow at the same pace.

Bytes that have moved already, such as the head of a response or a datagram, are paid for afterwards: the level is below
zero until then, but never by more than a second's worth.

One direction of a connection under limits: how many bytes may move now, and who pays for those that have moved. A
direction draws on the token bucket of the whole proxy and, once it belongs to an account, on that of the account;
during a request that rules of policies limit, on theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from actors.bus.loop import Loop, Timer

BURST: Final = 0.08
"""Seconds of full rate that an idle bucket saves up; within the documented ten percent over a second."""
TICK: Final = 0.02
"""Seconds of full rate that must be available before the next in the queue is woken."""
PIECE: Final = 1460
"""The least number of bytes worth moving, where the rate yields them within a tick: one segment on the wire."""

CHECKED_EACH: Final = 16
"""Connections that are woken before it is asked whether the turn has lasted too long."""

UNLIMITED: Final = 1 << 30
"""Bytes available where nothing is limited."""

Wake = Callable[[], None]


class Sharing(Protocol):
    """What divides the bandwidth of a bucket among several processes."""

    def begin(self) -> None:
        """Something is about to move."""

    def end(self) -> None:
        """Nothing is divided any more."""

    def moved(self, count: int) -> None:
        """So many bytes have moved."""

    def waits(self, count: int) -> None:
        """So many connections wait."""

    def new_rate(self, rate: int) -> int:
        """All together may have another rate from now on. Returns the share of this process."""


class TokenBucket:
    """`rate` is bytes per second, 0 for no limit. Time is the loop's."""

    __slots__ = ("_at", "_level", "_loop", "_passing", "_timer", "_waiting", "rate", "sharing")

    def __init__(self, loop: Loop, rate: int) -> None:
        self._loop = loop
        self.rate = rate
        self._level = rate * BURST
        self._at = loop.now
        self._waiting: deque[Wake] = deque()
        self._timer: Timer | None = None
        self.sharing: Sharing | None = None
        """Where other processes may have a share of the rate."""
        self._passing: deque[Wake] = deque()
        """Those that this bucket doesn't hold up; one timer wakes them all."""

    def set_rate(self, rate: int) -> None:
        """Change the rate, for waiting connections as well."""
        self._refill()
        if self.sharing is not None:
            rate = self.sharing.new_rate(rate)
        self.rate = rate
        self._level = min(self._level, rate * BURST)
        waiting, self._waiting = self._waiting, deque()
        for wake in waiting:
            self._loop.call_soon(wake)

    def set_share(self, rate: int) -> None:
        """Change the rate, and wake no connection before its time, which is another now."""
        if rate == self.rate:
            return
        self._refill()
        self.rate = rate
        self._level = min(max(self._level, -float(rate)), rate * BURST)
        if self._timer is not None:
            self._timer.cancel()
            self._set_timer()

    def available(self) -> int:
        """Bytes that one connection may move now; 0 when it has to wait."""
        if not self.rate:
            return UNLIMITED
        if self.sharing is not None:
            self.sharing.begin()
        level = self._refill()
        if level < self._least:
            return 0
        return int(max(self._least, level / (1 + len(self._waiting))))

    def consume(self, count: int) -> None:
        """Take the tokens of bytes that have moved."""
        if self.rate:
            self._level = max(self._refill() - count, -float(self.rate))
            if self.sharing is not None:
                self.sharing.moved(count)

    def wait(self, wake: Wake) -> None:
        """Call `wake` once, later, when tokens are available."""
        if not self.rate:
            if not self._passing:
                self._loop.call_later(TICK, self._wake_passing)
            self._passing.append(wake)  # another limit than this bucket's holds it up
            return
        self._waiting.append(wake)
        if self._timer is None:
            self._set_timer()
        if self.sharing is not None:
            self.sharing.waits(len(self._waiting))

    @property
    def waiting(self) -> int:
        """Connections that wait."""
        return len(self._waiting)

    @property
    def _least(self) -> float:
        return max(1.0, min(PIECE, self.rate * TICK))

    def _refill(self) -> float:
        now = self._loop.now
        if now > self._at:
            self._level = min(self.rate * BURST, self._level + (now - self._at) * self.rate)
            self._at = now
        return self._level

    def _set_timer(self) -> None:
        missing = max(self._least, self.rate * TICK) - self._refill()
        self._timer = self._loop.call_later(max(missing / self.rate, 0.001), self._on_timer)

    def _on_timer(self) -> None:
        """Wake the next connections, as long as there are tokens; with many of them, in several turns."""
        self._timer = None
        if not self._waiting or not self.rate:
            return
        for woken in range(1, len(self._waiting) + 1):
            if self._refill() < self._least:
                break
            self._waiting.popleft()()
            if woken % CHECKED_EACH == 0 and self._loop.turn_exceeded():
                break
        if self._waiting and not self._timed:  # one that was woken may have set it
            self._set_timer()

    @property
    def _timed(self) -> bool:
        return self._timer is not None

    def _wake_passing(self) -> None:
        passing, self._passing = self._passing, deque()
        self._wake_all(passing)

    def _wake_all(self, passing: deque[Wake]) -> None:
        for woken in range(1, len(passing) + 1):
            passing.popleft()()
            if woken % CHECKED_EACH == 0 and passing and self._loop.turn_exceeded():
                self._loop.call_soon(partial(self._wake_all, passing))
                return

    def __repr__(self) -> str:
        return f"<TokenBucket of {self.rate} B/s, {self._level:.0f} left, {len(self._waiting)} waiting>"


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

    __slots__ = ("_billing", "_buckets", "_further", "_inward", "_moved", "_shared", "_wake", "unattributed", "waiting")

    def __init__(self, inward: bool, shared: TokenBucket) -> None:
        """`shared` is the bucket of the whole proxy."""
        self._inward = inward
        self._shared = shared
        self._buckets: tuple[TokenBucket, ...] = (shared,)
        self._further: tuple[TokenBucket, ...] = ()
        self._billing: Billing | None = None
        self._moved: Wake | None = None
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

    def follow(self, moved: Wake | None) -> None:
        """Call this whenever bytes have moved, in place of what was called before; None: call nothing."""
        self._moved = moved

    @property
    def followed(self) -> bool:
        """Whether something is called."""
        return self._moved is not None

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
        if self._moved is not None:
            self._moved()

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
        self._wake = self._moved = None
