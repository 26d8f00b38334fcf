"""How many requests may do at once what holds a thread for long: the API has few threads, and others want in, too."""

from __future__ import annotations

import threading

from api.http.errors import rate_limited

RETRY_AFTER = 1
"""Seconds after which it may be tried again."""


class Slots:
    """`limit` places. Thread-safe."""

    def __init__(self, limit: int, what: str) -> None:
        """`what` names those who take them, as in `exports`."""
        self._free = threading.BoundedSemaphore(limit)
        self._message = f"No more than {limit} {what} are possible at once"

    def take(self) -> Slot:
        """Take a place. Raises `ApiError` 429 when there is none."""
        if not self._free.acquire(blocking=False):
            raise rate_limited(RETRY_AFTER, self._message)
        return Slot(self._free)


class Slot:
    """A place that was taken; as a context manager it is given back at the end, else by `release`."""

    def __init__(self, free: threading.BoundedSemaphore) -> None:
        self._free: threading.BoundedSemaphore | None = free

    def release(self) -> None:
        """Give it back; once is enough."""
        free, self._free = self._free, None
        if free is not None:
            free.release()

    def __enter__(self) -> None:
        """It is taken already."""

    def __exit__(self, *_error: object) -> None:
        self.release()
