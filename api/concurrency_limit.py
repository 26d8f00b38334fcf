"""How many requests may do at once what holds a thread for long: the API has few threads, and others want in, too.

Nobody gets all of the places: each user (or client, before it is known who asks) has a share, whatever number of keys,
tokens and connections they come with.
"""

from __future__ import annotations

import threading
from collections import Counter

from api.errors import TooBusy

RETRY_AFTER = 1
"""Seconds after which it may be tried again."""


TAILS_MAX, TAILS_EACH = 9, 3
"""Requests that wait for new records: in all, and of one user."""
EXPORTS_MAX, EXPORTS_EACH = 6, 2
"""Requests that read many records: in all, and of one user."""


class ConcurrencyLimit:
    """`limit` places, of which one holder has at most `share`. Thread-safe."""

    def __init__(self, limit: int, share: int, what: str, holder: str = "user") -> None:
        """`what` names those who take them, as in `exports`; `holder` is what has a share."""
        self._limit, self._share, self._what, self._holder = limit, share, what, holder
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Places of all holders."""
        with self._lock:
            return self._taken.total()

    def take(self, holder: str) -> Slot:
        """Take a place for this user. Raises `TooBusy` when there is none, or none left of their share."""
        with self._lock:
            if self._taken[holder] >= self._share:
                raise self._refused(self._share, f" for one {self._holder}")
            if self._taken.total() >= self._limit:
                raise self._refused(self._limit, "")
            self._taken[holder] += 1
        return Slot(self, holder)

    def give_back(self, holder: str) -> None:
        """A place that `holder` had is free again."""
        with self._lock:
            self._taken[holder] -= 1
            self._taken += Counter()  # forgets those who hold none

    def _refused(self, limit: int, whom: str) -> Exception:
        return TooBusy(RETRY_AFTER, f"No more than {limit} {self._what} are possible at once{whom}")


class Slot:
    """A place that was taken; as a context manager it is given back at the end, else by `release`."""

    def __init__(self, slots: ConcurrencyLimit, holder: str) -> None:
        self._slots: ConcurrencyLimit | None = slots
        self._holder = holder

    def release(self) -> None:
        """Give it back; once is enough."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.give_back(self._holder)

    def __enter__(self) -> None:
        """It is taken already."""

    def __exit__(self, *_error: object) -> None:
        self.release()
