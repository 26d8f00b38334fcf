"""Wrong passwords: which client has failed so often that nothing more of it is checked, for a while.

What counts is a *new* wrong pair, one that cost a check; a program that repeats an old one costs nothing and counts
nothing. Failures are counted for a client and a user together, and at a higher number for a client alone, so that a
neighbour behind the same translator suffers late, and a client at another address never.

All processes of a proxy count them together, as they count requests, and keep together until when there is a pause.
What was counted before a pause counts no more after it: each pause has a number, and failures are counted under the
number of the last one.
"""

from __future__ import annotations

from actors.bounded import keep
from actors.state.choices import SharedChoices
from actors.state.counts import SharedKey
from actors.state.live_state import LiveState

PAUSE = 30.0
"""Seconds without checks after too many."""
LATELY = 600.0
"""Seconds after a failure in which new pairs of a client are checked after those of clients without one."""
FAILURES_OF_USER = 10
FAILURES_OF_CLIENT = 50
"""Within a minute."""
TABLE_SIZE = 4096


class Failures:
    """Counts failures by a key. `now` is the loop's clock, `kind` tells them from failures of another kind."""

    def __init__(self, state: LiveState, most: int, kind: str) -> None:
        self._state = state
        self._most = most
        self._kind = kind
        self._pauses = SharedChoices(state, "pause", kind)
        """Number and end of the last pause of each key."""
        self._counts: dict[tuple[str, ...], tuple[int, SharedKey]] = {}
        """After which pause, and how many."""

    def failed(self, key: tuple[str, ...], now: float) -> bool:
        """One more. True when a pause begins with it."""
        number, until = self._pauses.choice(_digest(key))
        count = self._count(key, number)
        count.add_requests(1)
        if count.requests() < self._most or until > now:
            return False
        self._counts.pop(key)[1].release()
        self._pauses.keep(_digest(key), number + 1, now + PAUSE)
        return True

    def paused(self, key: tuple[str, ...], now: float) -> bool:
        """Whether nothing is checked for it now."""
        return self._pauses.choice(_digest(key))[1] > now

    def _count(self, key: tuple[str, ...], number: int) -> SharedKey:
        after, count = self._counts.pop(key, (-1, None))
        if count is None or after != number:
            if count is not None:
                count.release()
            count = self._state.key(self._kind, str(number), *key)
        if len(self._counts) >= TABLE_SIZE:
            self._counts.pop(next(iter(self._counts)))[1].release()
        self._counts[key] = number, count
        return count


class GuessLimit:
    """Both counts for one client and user, and which clients failed lately."""

    def __init__(self, state: LiveState, kind: str = "guess") -> None:
        self._last: dict[str, float] = {}
        self._of_user = Failures(state, FAILURES_OF_USER, kind)
        self._of_client = Failures(state, FAILURES_OF_CLIENT, kind)

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


def _digest(key: tuple[str, ...]) -> bytes:
    return "\0".join(key).encode("utf-8", "surrogateescape")
