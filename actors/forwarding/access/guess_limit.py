"""Wrong passwords: which client has failed so often that nothing more of it is checked, for a while.

What counts is a *new* wrong pair, one that cost a check; a program that repeats an old one costs nothing and counts
nothing. Failures are counted for a client and a user together, and at a higher number for a client alone, so that a
neighbour behind the same translator suffers late, and a client elsewhere never.
"""

from __future__ import annotations

from actors.bounded import keep

WITHIN = 60.0
"""Seconds in which failures add up."""
PAUSE = 30.0
"""Seconds without checks after too many."""
LATELY = 600.0
"""Seconds after a failure in which new pairs of a client are checked after those of clients without one."""
FAILURES_OF_USER = 10
FAILURES_OF_CLIENT = 50
TABLE_SIZE = 4096


class Failures:
    """Counts failures by a key. `now` is the loop's clock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[tuple[str, ...], tuple[float, int]] = {}
        self._paused: dict[tuple[str, ...], float] = {}

    def failed(self, key: tuple[str, ...], now: float) -> bool:
        """One more. True when a pause begins with it."""
        since, count = self._counts.get(key, (now, 0))
        if now - since > WITHIN:
            since, count = now, 0
        if count + 1 < self._most:
            keep(self._counts, key, (since, count + 1), TABLE_SIZE)
            return False
        self._counts.pop(key, None)
        keep(self._paused, key, now + PAUSE, TABLE_SIZE)
        return True

    def paused(self, key: tuple[str, ...], now: float) -> bool:
        """Whether nothing is checked for it now."""
        return self._paused.get(key, 0.0) > now


class GuessLimit:
    """Both counts for one client and user, and which clients failed lately."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._of_user = Failures(FAILURES_OF_USER)
        self._of_client = Failures(FAILURES_OF_CLIENT)

    def failed(self, client: str, user: str, now: float) -> bool:
        """A new pair was wrong. True when a pause begins with it."""
        self._last.pop(client, None)
        keep(self._last, client, now, TABLE_SIZE)
        of_user = self._of_user.failed((client, user), now)
        return self._of_client.failed((client,), now) or of_user

    def paused(self, client: str, user: str, now: float) -> bool:
        """Whether no new pair of them is checked now."""
        return self._of_user.paused((client, user), now) or self._of_client.paused((client,), now)

    def failed_lately(self, client: str, now: float) -> bool:
        """Whether a pair of this client was wrong in the last `LATELY` seconds."""
        return now - self._last.get(client, -LATELY) < LATELY
