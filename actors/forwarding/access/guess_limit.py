"""Wrong passwords: which client has failed so often that nothing more of it is checked, for a while.

What counts is a *new* wrong pair, one that cost a check; a program that repeats an old one costs nothing and counts
nothing. Failures are counted for a client and a user together, and at a higher number for a client alone, so that a
neighbour behind the same translator suffers late, and a client elsewhere never.

Several workers of a proxy count them together, as they count requests, and keep together until when there is a pause,
as they keep the choices of sessions. What was counted before a pause counts no more after it: each pause has a number,
and failures are counted under the number of the last one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.bounded import keep

if TYPE_CHECKING:
    from actors.forwarding.limits.elsewhere import Elsewhere, SharedKey, SharedSessions

WITHIN = 60.0
"""Seconds in which failures add up."""
PAUSE = 30.0
"""Seconds without checks after too many."""
LATELY = 600.0
"""Seconds after a failure in which new pairs of a client are checked after those of clients without one."""
FAILURES_OF_USER = 10
FAILURES_OF_CLIENT = 50
TABLE_SIZE = 4096


@dataclass(frozen=True, slots=True)
class KeptFailures:
    """What counts of the failures by a key: since when and how many, and until when there is a pause, 0 without one."""

    key: tuple[str, ...]
    since: float
    count: int
    until: float


class Failures:
    """Counts failures by a key. `now` is the loop's clock, `kind` what is counted among several workers."""

    def __init__(self, most: int, kind: str = "guess") -> None:
        self._most = most
        self._kind = kind
        self._elsewhere: Elsewhere | None = None
        """The other workers; None with one."""
        self._pauses: SharedSessions | None = None
        """Number and end of the last pause of each key, of all workers."""
        self._counts: dict[tuple[str, ...], tuple[float, int, int]] = {}
        """Since when, how many, and after which pause."""
        self._paused: dict[tuple[str, ...], float] = {}

    def share(self, elsewhere: Elsewhere, now: float) -> None:
        """Count together with other workers from now on."""
        self._elsewhere, self._pauses = elsewhere, elsewhere.sessions("pause", self._kind)
        for each in tuple(self.kept(now)):
            if each.until:
                self._pause_everywhere(each.key, each.until)
            else:
                self._shared(elsewhere, each.key).add_requests(each.count)

    def failed(self, key: tuple[str, ...], now: float) -> bool:
        """One more. True when a pause begins with it."""
        begins = self._count(key, now) >= self._most
        if self._elsewhere is not None:
            shared = self._shared(self._elsewhere, key)
            begins = (shared.add_requests(1) and shared.requests() >= self._most) or begins
        if not begins or self.paused(key, now):
            return False
        self._counts.pop(key, None)
        keep(self._paused, key, now + PAUSE, TABLE_SIZE)
        self._pause_everywhere(key, now + PAUSE)
        return True

    def _count(self, key: tuple[str, ...], now: float) -> int:
        """Count one more of this process; how many count."""
        number, _until = self._last_pause(key)
        since, count, after = self._counts.get(key, (now, 0, number))
        if now - since > WITHIN or after != number:
            since, count = now, 0
        keep(self._counts, key, (since, count + 1, number), TABLE_SIZE)
        return count + 1

    def _shared(self, elsewhere: Elsewhere, key: tuple[str, ...]) -> SharedKey:
        return elsewhere.key(self._kind, str(self._last_pause(key)[0]), *key)

    def _last_pause(self, key: tuple[str, ...]) -> tuple[int, float]:
        """The number of the last pause at any worker, and when it ends; 0 and 0 without one."""
        return (0, 0.0) if self._pauses is None else self._pauses.choice(_digest(key))

    def _pause_everywhere(self, key: tuple[str, ...], until: float) -> None:
        if self._pauses is not None:
            self._pauses.keep(_digest(key), self._last_pause(key)[0] + 1, until)

    def paused(self, key: tuple[str, ...], now: float) -> bool:
        """Whether nothing is checked for it now."""
        return self._paused.get(key, 0.0) > now or self._last_pause(key)[1] > now

    def kept(self, now: float) -> Iterable[KeptFailures]:
        """What still counts, for a process that comes after this one."""
        for key, (since, count, _after) in self._counts.items():
            if now - since <= WITHIN:
                yield KeptFailures(key, since, count, 0.0)
        for key, until in self._paused.items():
            if until > now:
                yield KeptFailures(key, now, 0, until)

    def add(self, kept: KeptFailures) -> None:
        """Count what another process has counted."""
        if kept.until:
            keep(self._paused, kept.key, max(kept.until, self._paused.get(kept.key, 0.0)), TABLE_SIZE)
        else:
            since, count, after = self._counts.get(kept.key, (kept.since, 0, 0))
            keep(self._counts, kept.key, (max(since, kept.since), count + kept.count, after), TABLE_SIZE)


class GuessLimit:
    """Both counts for one client and user, and which clients failed lately."""

    def __init__(self, kind: str = "guess") -> None:
        self._last: dict[str, float] = {}
        self._of_user = Failures(FAILURES_OF_USER, kind)
        self._of_client = Failures(FAILURES_OF_CLIENT, kind)

    def share(self, elsewhere: Elsewhere, now: float) -> None:
        """Count together with other workers from now on."""
        self._of_user.share(elsewhere, now)
        self._of_client.share(elsewhere, now)

    def failed(self, client: str, user: str, now: float) -> bool:
        """A new pair was wrong. True when a pause begins with it."""
        self._last.pop(client, None)
        keep(self._last, client, now, TABLE_SIZE)
        of_user = self._of_user.failed((client, user), now)
        return self._of_client.failed((client,), now) or of_user

    def paused(self, client: str, user: str, now: float) -> bool:
        """Whether no new pair of them is checked now."""
        return self._of_user.paused((client, user), now) or self._of_client.paused((client,), now)

    def kept(self, now: float) -> tuple[KeptFailures, ...]:
        """What still counts, for a process that comes after this one."""
        return (*self._of_user.kept(now), *self._of_client.kept(now))

    def add(self, kept: Iterable[KeptFailures]) -> None:
        """Count what another process has counted."""
        for each in kept:
            (self._of_client if len(each.key) == 1 else self._of_user).add(each)

    def failed_lately(self, client: str, now: float) -> bool:
        """Whether a pair of this client was wrong in the last `LATELY` seconds."""
        return now - self._last.get(client, -LATELY) < LATELY


def _digest(key: tuple[str, ...]) -> bytes:
    return "\0".join(key).encode("utf-8", "surrogateescape")
