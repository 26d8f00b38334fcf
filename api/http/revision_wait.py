"""`X-Config-Revision` of requests: a node serves them once it has this commit.

Who asks may be known by it alone, such as a key that was made at another node a moment ago. So a request with
credentials waits before it is authenticated, too. Anybody can send one, so only a few wait at a time (`STRANGERS`), far
fewer than there are threads; the others are authenticated at once, and wait after that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import falcon

REVISION = "X-Config-Revision"
"""In a fleet: of a response to a change, the number of its commit; of a request, the one that is to be served here."""
REVISION_WAIT = 5.0
"""Seconds that a request waits for it."""
STRANGERS = 2
"""Requests that wait at a time before it is known whose they are."""


def revision_of(req: falcon.Request) -> int | None:
    """The number that a request has; None when it has none, or it can't be one."""
    given = req.get_header(REVISION) or ""
    is_number = given.isascii() and given.isdecimal() and len(given) < 19  # as many digits as PostgreSQL's bigint
    return int(given) if is_number else None


class RevisionWait:
    """That before authentication. Thread-safe."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(STRANGERS)

    def __call__(self, number: int, wait_for: Callable[[int, float], bool]) -> float:
        """Wait as `wait_for` does, if there is a place; the seconds that it took."""
        if not self._places.acquire(blocking=False):  # asking whether it is there has the database read, too
            return 0.0
        began = time.monotonic()
        try:
            wait_for(number, REVISION_WAIT)
        finally:
            self._places.release()
        return time.monotonic() - began
