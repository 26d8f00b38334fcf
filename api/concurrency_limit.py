"""Limits of concurrent requests that occupy a thread for long: the API has few threads.

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
COUNTS_MAX, COUNTS_EACH = 6, 3
"""Requests that count records, each of which may take the log indexer half a second: in all, and of one user."""


class ConcurrencyLimit:
    """`limit` slots, of which one holder has at most `share`. Thread-safe."""

    def __init__(self, limit: int, share: int, what: str, holder: str = "user") -> None:
        """`what` names the requests, as in `exports`; `holder` names who has a share."""
        self._limit, self._share, self._what, self._holder = limit, share, what, holder
        self._lock = threading.Lock()
        self._acquired: Counter[str] = Counter()

    @property
    def acquired(self) -> int:
        """Slots of all holders."""
        with self._lock:
            return self._acquired.total()

    def acquire(self, holder: str) -> Slot:
        """Acquire a slot. Raises `TooBusy` when none is free, or none of the share of `holder`."""
        with self._lock:
            if self._acquired[holder] >= self._share:
                raise self._error(self._share, f" for one {self._holder}")
            if self._acquired.total() >= self._limit:
                raise self._error(self._limit, "")
            self._acquired[holder] += 1
        return Slot(self, holder)

    def release(self, holder: str) -> None:
        """Release a slot of `holder`."""
        with self._lock:
            self._acquired[holder] -= 1
            self._acquired += Counter()  # drops holders of none

    def _error(self, limit: int, of: str) -> Exception:
        return TooBusy(RETRY_AFTER, f"No more than {limit} {self._what} are possible at once{of}")


class Slot:
    """An acquired slot. As a context manager it is released at the end, else by `release`."""

    def __init__(self, slots: ConcurrencyLimit, holder: str) -> None:
        self._slots: ConcurrencyLimit | None = slots
        self._holder = holder

    def release(self) -> None:
        """Release it. May be called again."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.release(self._holder)

    def __enter__(self) -> None:
        """Acquired already."""

    def __exit__(self, *_error: object) -> None:
        self.release()
