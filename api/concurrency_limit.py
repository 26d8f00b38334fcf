"""Limits of concurrent requests that occupy a thread for long, since the API has few; and of what requests hold in
memory.

No user can take all slots: each (or each client, before it is authenticated) has a share, regardless of the number of
keys, tokens and connections.
"""

from __future__ import annotations

import threading
from collections import Counter

from api.errors import TooBusy

RETRY_AFTER = 1
"""Seconds after which the request may be repeated."""


TAILS_MAX, TAILS_EACH = 9, 3
"""Requests that wait for new records: in all, and of one user."""
EXPORTS_MAX, EXPORTS_EACH = 6, 2
"""Requests that read many records: in all, and of one user."""
REVISIONS_MAX, REVISIONS_EACH = 12, 6
"""Requests that wait for a commit of another node: in all, and of one user; and as many of clients without a user."""
COUNTS_MAX, COUNTS_EACH = 6, 3
"""Requests that count records, each of which may take the log indexer half a second: in all, and of one user."""


class Allowance:
    """A limit of an amount in all, and of one holder. Thread-safe."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._lock = threading.Lock()
        self._reserved: Counter[str] = Counter()

    @property
    def reserved(self) -> int:
        """What all holders have."""
        with self._lock:
            return self._reserved.total()

    def is_used_by(self, holder: str) -> bool:
        """Whether a holder has all that one may have."""
        with self._lock:
            return self._reserved[holder] >= self._each

    def reserve(self, holder: str, size: int) -> bool:
        """Reserve so much; False when there is not so much left."""
        with self._lock:
            if self._reserved[holder] + size > self._each or self._reserved.total() + size > self._total:
                self._reserved += Counter()  # drops holders of none
                return False
            self._reserved[holder] += size
            return True

    def release(self, holder: str, size: int) -> None:
        """Release what was reserved."""
        with self._lock:
            self._reserved[holder] -= size
            self._reserved += Counter()


class Reservation:
    """What one request has reserved. As a context manager it is released at the end, else by `release`."""

    def __init__(self) -> None:
        self._held: list[tuple[Allowance, str, int]] = []
        self._lock = threading.Lock()

    def reserve(self, allowance: Allowance, holder: str, size: int) -> bool:
        """Reserve so much until `release`; False when there is not so much left."""
        if not allowance.reserve(holder, size):
            return False
        with self._lock:
            self._held.append((allowance, holder, size))
        return True

    def release(self) -> None:
        """Release everything. May be called again."""
        with self._lock:
            held, self._held = self._held, []
        for allowance, holder, size in held:
            allowance.release(holder, size)

    def __enter__(self) -> None:
        """Reserved already."""

    def __exit__(self, *_error: object) -> None:
        self.release()


class ConcurrencyLimit:
    """`limit` slots, of which one holder has at most `share`. Thread-safe."""

    def __init__(self, limit: int, share: int, what: str, holder: str = "user") -> None:
        """`what` names the requests, as in `exports`; `holder` names who has a share."""
        self._limit, self._share, self._what, self._holder = limit, share, what, holder
        self._slots = Allowance(limit, share)

    @property
    def acquired(self) -> int:
        """Slots of all holders."""
        return self._slots.reserved

    def acquire(self, holder: str) -> Reservation:
        """Acquire a slot. Raises `TooBusy` when none is free, or none of the share of `holder`."""
        slot = Reservation()
        if slot.reserve(self._slots, holder, 1):
            return slot
        is_share = self._slots.is_used_by(holder)
        most, of = (self._share, f" for one {self._holder}") if is_share else (self._limit, "")
        raise TooBusy(RETRY_AFTER, f"No more than {most} {self._what} are possible at once{of}")
