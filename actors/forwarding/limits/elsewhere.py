"""What the other workers of this proxy count, as far as limits need it. With one worker there is none of this.

Each limit is checked first and what it admits published then, in the same turn of the loop. So a limit is exceeded by
no more than what the other workers admit in the same microseconds, which is one each. Never is one refused too many.

Requests of a minute are counted in ten slots (`actors.workers.keys`): a place is free again up to seven seconds after a
minute, so that there are never more in any minute.

What the other workers of a proxy have used of one account since the collector's last total. The total says how far it
includes what each process has counted; what each has counted by now is in shared memory. So the sum of both is exact at
any moment, whether the collector is there or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Final

from actors.bus.loop import Loop
from actors.bus.messages.accounts import Counted
from actors.forwarding.limits.kept_window import KeptWindow
from actors.forwarding.limits.shared_bandwidth import SharedBandwidth
from actors.forwarding.limits.sliding_window import EXACT, MINUTE, SlidingWindow
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.workers.columns import OpenCount, open_columns
from actors.workers.keys import SLOT_SECONDS, SLOTS, Digests, slot_at
from actors.workers.sessions import halves
from actors.workers.usage import NO_PLACE, Used
from actors.workers.worker import Worker


class UsedElsewhere:
    """An account that this worker holds under a serial. What the others have counted before does not count yet."""

    def __init__(self, loop: Loop, worker: Worker, digest: int, serial: int) -> None:
        self._loop = loop
        self._worker = worker
        self._digest = digest
        self._place = worker.begin_usage(digest, serial)
        self._included: dict[tuple[int, int], int] = {}
        self.begin()

    def begin(self) -> None:
        """From now on what they count counts: a period begins."""
        self._included = {(each.instance, each.serial): each.bytes for each in self._others()}

    def include(self, counted: Iterable[Counted]) -> None:
        """A total includes so much of the other processes, and nothing of those that aren't named."""
        self._included = {(instance, serial): included for instance, serial, included in counted}

    def bytes(self) -> int:
        """What they have counted beyond that."""
        return sum(map(self._beyond, self._others()))

    def _beyond(self, used: Used) -> int:
        included = self._included.get((used.instance, used.serial))
        if included is None:  # it has begun since, or has ended and is part of the total
            return used.bytes if self._worker.is_living(used.instance) else 0
        return max(0, used.bytes - included)

    def _others(self) -> list[Used]:
        return self._worker.used_elsewhere(self._digest, self._loop.now)

    def count(self, counted: int) -> None:
        """This worker has counted so many bytes since it began to hold the account."""
        if self._place != NO_PLACE:
            self._worker.count_usage(self._place, counted)

    def end(self) -> None:
        """This worker holds it no more."""
        if self._place != NO_PLACE:
            self._worker.end_usage(self._place)
            self._place = NO_PLACE

    def __repr__(self) -> str:
        return f"<UsedElsewhere: {self.bytes()} bytes>"


_GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it modulo 1 lie far apart, however many there are."""
_USAGE: Final = "usage"
"""Begins the key of what is used of an account."""
COUNTS_FOR: Final = SLOTS * SLOT_SECONDS
"""Seconds that a request counts at most."""


class SharedKey:
    """A client, account, credential, guest or rule, as all workers count it."""

    __slots__ = ("_digest", "_loop", "_worker")

    def __init__(self, loop: Loop, worker: Worker, digest: int) -> None:
        self._loop = loop
        self._worker = worker
        self._digest = digest

    def connections(self) -> int:
        """Those of the other workers."""
        return self._worker.connections_elsewhere(self._digest, self._loop.now)

    def set_connections(self, count: int) -> None:
        """So many are open here."""
        self._worker.set_connections(self._digest, count)

    def requests(self) -> int:
        """Those of the last minute, of all workers."""
        return self._worker.requests(self._digest, self._loop.now)

    def add_requests(self, count: int) -> bool:
        """Count them here; False when this worker has no place for the key."""
        return self._worker.add_requests(self._digest, self._loop.now, count)

    def own_requests(self, last: float) -> KeptWindow:
        """Those that this worker has counted, as of the end of their slots. The last one was at this moment."""
        slot, counts = slot_at(last), self._worker.own_requests_by_age(self._digest, last)
        ends = (min(last, (slot + 1 - age) * SLOT_SECONDS) for age in range(SLOTS - 1, -1, -1))
        times = [end for end, count in zip(ends, reversed(counts), strict=True) for _ in range(min(count, EXACT))]
        return KeptWindow(last, sum(counts), 0, tuple(times[-EXACT:]))

    def wait_for_request(self, limit: int) -> float:
        """Seconds until fewer than `limit` count."""
        now = self._loop.now
        slot, counts = slot_at(now), self._worker.requests_by_age(self._digest, now)
        total = sum(counts)
        for age in range(SLOTS - 1, -1, -1):
            total -= counts[age]
            if total < limit:
                return (slot + SLOTS - age) * SLOT_SECONDS - now
        return COUNTS_FOR

    def divide(self, inward: TokenBucket, outward: TokenBucket) -> None:
        """Divide the bandwidth of these buckets among all workers, if it is limited and not divided yet."""
        if (inward.rate or outward.rate) and inward.sharing is None:
            SharedBandwidth(self._loop, self._worker, self._digest, inward, outward)

    def window(self, before: SlidingWindow) -> SharedWindow:
        """Its requests, with those that this worker has counted by itself."""
        return SharedWindow(self, before, self._loop.now)


class SharedWindow(SlidingWindow):
    """The requests of one key, of all workers. One without a place in its table counts for this worker alone."""

    __slots__ = ("_key", "_last")

    def __init__(self, key: SharedKey, before: SlidingWindow, now: float) -> None:
        super().__init__(now)
        self._key = key
        self._last = now
        counted = before.count(now)
        if counted:
            key.add_requests(counted)

    def try_acquire(self, limit: int, now: float) -> int:
        """See `SlidingWindow`."""
        self._last = now
        key = self._key
        if key.requests() >= limit:
            return max(1, math.ceil(key.wait_for_request(limit)))
        return 0 if key.add_requests(1) else super().try_acquire(limit, now)

    def kept(self) -> KeptWindow:
        """See `SlidingWindow`: what this worker has counted, none of it earlier than it was."""
        return self._key.own_requests(self._last)

    def idle(self, now: float) -> bool:
        """See `SlidingWindow`: what it counts in the table isn't forgotten with it."""
        return self._last <= now - MINUTE and super().idle(now)


class SharedSessions:
    """The choices of the sessions of one kind, of all workers. Times are of the loop's clock."""

    __slots__ = ("_loop", "_mark", "_worker")

    def __init__(self, loop: Loop, worker: Worker, mark: bytes) -> None:
        """`mark` tells them from sessions of another kind."""
        self._loop = loop
        self._worker = worker
        self._mark = mark

    def choice(self, digest: bytes) -> tuple[int, float]:
        """What stands for the choice of a session, and until when; 0 and 0 for none."""
        value, end = self._worker.session(self._halves(digest), self._loop.now)
        return value, end / 1000

    def keep(self, digest: bytes, value: int, until: float) -> None:
        """This is the choice from now on. `value` has 64 bits and isn't 0."""
        self._worker.keep_session(self._halves(digest), value, math.ceil(until * 1000), self._loop.now)

    def _halves(self, digest: bytes) -> tuple[int, int]:
        return halves(blake2b(digest, digest_size=16, key=self._mark).digest())


class Elsewhere:
    """The other workers of one proxy. `on_processes` is called with their number when it has become another."""

    def __init__(self, loop: Loop, worker: Worker, proxy_id: str) -> None:
        self._loop = loop
        self._worker = worker
        self._proxy_id = proxy_id
        self._digests = Digests(proxy_id)
        self.on_processes: Callable[[int], None] = lambda _count: None
        self._processes = 0

    @property
    def part(self) -> float:
        """Where this worker is among the others, from 0 to below 1: all begin at different places."""
        return self._worker.column * _GOLDEN % 1.0

    def sessions(self, *kind: str) -> SharedSessions:
        """The sessions of this kind."""
        mark = blake2b("\0".join((self._proxy_id, *kind)).encode(), digest_size=16).digest()
        return SharedSessions(self._loop, self._worker, mark)

    def key(self, *parts: str) -> SharedKey:
        """What all workers count for this client, account or rule."""
        return SharedKey(self._loop, self._worker, self._digests.of(*parts))

    def used(self, account_id: str, serial: int) -> UsedElsewhere:
        """What the others use of an account that this worker holds under this serial from now on."""
        return UsedElsewhere(self._loop, self._worker, self._digests.of(_USAGE, account_id), serial)

    def set_open(self, count: int) -> None:
        """So many connections are open here."""
        self._worker.set_open(count, self._loop.now)

    def open_connections(self) -> OpenCount:
        """Those of all workers, this one included, and how many workers there are."""
        found = self._worker.open_connections()
        if found.processes != self._processes:
            self._processes = found.processes
            self.on_processes(max(1, found.processes))
        return found

    def __repr__(self) -> str:
        return f"<Elsewhere: column {self._worker.column}, {self._worker.open_connections()}>"


def join_workers(
    loop: Loop, folder: Path, proxy_id: str, column: int, on_failure: Callable[[str], None]
) -> Elsewhere | None:
    """Count in this column of the proxy's folder; None when that can't be, which `on_failure` is called with."""
    try:
        columns = open_columns(folder / proxy_id)
    except OSError as error:
        on_failure(str(error))
        return None
    if columns is None:
        on_failure("the file of their columns is not there, or of another release")
        return None
    return Elsewhere(loop, Worker(folder / proxy_id, columns, column, on_failure), proxy_id)
