"""Limits of the bodies that are held in memory, in all and of one user.

A body of at most `SMALL` bytes is read before the client has been authenticated. Of a larger one nothing more is read
until the application has decided: it is called with a `BodyGate` in place of the body, and either rejects the request
like any other (401 before 403 before 413), or opens the gate and is called again when all of the body is there. No
thread waits in between.
"""

from __future__ import annotations

import threading
from collections import Counter

SMALL = 64 * 1024
SMALL_TOTAL = 64 * 1024 * 1024
"""Bytes of small bodies in memory at the same time, of all connections."""
LARGE_TOTAL, LARGE_EACH = 64 * 1024 * 1024, 32 * 1024 * 1024
"""Bytes of larger ones: in all, and of one user."""


class BodyAwaited(Exception):
    """The gate was opened: there is no response before the body is here."""


class Budget:
    """A limit of bytes in all, and of one holder. Thread-safe."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._lock = threading.Lock()
        self._reserved: Counter[str] = Counter()

    @property
    def reserved(self) -> int:
        """Bytes of all holders."""
        with self._lock:
            return self._reserved.total()

    def reserve(self, holder: str, size: int) -> bool:
        """Reserve them; False when there are not so many left."""
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
    """The bytes that one request has reserved of the budgets."""

    def __init__(self) -> None:
        self._held: list[tuple[Budget, str, int]] = []
        self._lock = threading.Lock()

    def reserve(self, budget: Budget, holder: str, size: int) -> bool:
        """Reserve bytes until `release`; False when there are not so many left."""
        if not budget.reserve(holder, size):
            return False
        with self._lock:
            self._held.append((budget, holder, size))
        return True

    def release(self) -> None:
        """Release everything. May be called again."""
        with self._lock:
            held, self._held = self._held, []
        for budget, holder, size in held:
            budget.release(holder, size)


class BodyGate:
    """Delays the body of one request until the application has decided to read it.

    `length` is the `Content-Length`, None of a chunked body. `rate_headers` are those of the first call, so that a
    request counts once.
    """

    def __init__(self, length: int | None, budget: Budget, reservation: Reservation) -> None:
        self.length = length
        self.most: int | None = None
        self.body_is_here = False
        self.rate_headers: dict[str, str] | None = None
        self._budget = budget
        self._reservation = reservation

    @property
    def opened(self) -> bool:
        """Whether the application has asked for the body, and it is not complete yet."""
        return self.most is not None and not self.body_is_here

    def open(self, most: int, holder: str) -> bool:
        """Have the body read, up to `most` bytes beside the framing of chunks; False when too much of `holder` or of
        all is being read already."""
        if not self._reservation.reserve(self._budget, holder, self.length or 2 * most):
            return False
        self.most = most
        return True
