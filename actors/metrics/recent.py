"""What was counted lately of each proxy, account, pool and upstream: for every row of a list.

Of each there are the bytes of every 5 s of the last minute, and the requests of every 5 minutes of the last hour. It is
in memory alone. What was counted of proxies before this process began is in the series, from which it begins
(`remember`); of all else nothing is known of that time. Of pools and upstreams there are no bytes, and uses and checks
count as requests.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable
from pathlib import Path

from actors.bounded import keep
from actors.bus.messages.metrics import RecentUse
from actors.log_lines import ThrottledLog
from actors.pools.state import OWN_TABLE, uses_of

log = logging.getLogger(__name__)

BUCKETS = 12
SHORT, LONG = 5, 300
"""Seconds of a bucket of bytes, and of one of requests."""
_SLOTS = BUCKETS + 1
"""The last bucket is not over, and is none of those whose rates are asked for."""
OWN_AT_ONCE = 200
"""Files of proxies with upstreams of their own that are read in one sample."""
KEYS_MAX = 20_000
"""Of how many something is known; 650 bytes each."""


class _Ring:
    """The sums of the latest buckets. A bucket is known by its number: Unix seconds by its width."""

    __slots__ = ("_latest", "_sums")

    def __init__(self) -> None:
        self._latest = 0
        self._sums = array("q", bytes(8 * _SLOTS))

    def add(self, number: int, amount: int) -> None:
        """Count in a bucket, unless it is too old."""
        self._go_to(number)
        if number > self._latest - _SLOTS:
            self._sums[number % _SLOTS] += amount

    def at(self, number: int) -> int:
        """The sum of this one."""
        return self._sums[number % _SLOTS] if self._latest - _SLOTS < number <= self._latest else 0

    def until(self, number: int) -> tuple[int, ...]:
        """Those up to this one, the oldest first."""
        self._go_to(number)
        return tuple(
            self._sums[each % _SLOTS] if each > self._latest - _SLOTS else 0
            for each in range(number - BUCKETS + 1, number + 1)
        )

    def _go_to(self, number: int) -> None:
        for each in range(max(self._latest + 1, number - _SLOTS + 1), number + 1):
            self._sums[each % _SLOTS] = 0
        self._latest = max(self._latest, number)


class RecentUses:
    """The latest uses by id."""

    def __init__(self, began: float) -> None:
        """`began` is when counting began, in Unix seconds."""
        self._began = began
        self._known: dict[str, tuple[_Ring, _Ring, _Ring]] = {}

    def add(self, key: str, at: float, moved: float, requests: float, failed: float) -> None:
        """Bytes in both directions, requests, and refusals and errors, at `at` in Unix seconds."""
        if not (moved or requests or failed):
            return
        rings = self._known.get(key)
        if rings is None:
            rings = _Ring(), _Ring(), _Ring()
            keep(self._known, key, rings, KEYS_MAX)
        rings[0].add(int(at // SHORT), int(moved))
        rings[1].add(int(at // LONG), int(requests))
        rings[2].add(int(at // LONG), int(failed))

    def remember(self, rows: Iterable[tuple[str, float, float, float]]) -> None:
        """What was counted before: ids, when, requests, refusals and errors."""
        for key, at, requests, failed in rows:
            self.add(key, at, 0, requests, failed)

    def forget(self, key: str) -> None:
        """It was deleted."""
        self._known.pop(key, None)

    def of(self, keys: Iterable[str], now: float) -> dict[str, RecentUse]:
        """By id, the uses up to `now` of those of which something is known."""
        last = int(now // SHORT) - 1  # the one that is over: a part of one would be no rate
        found = {}
        for key in keys:
            rings = self._known.get(key)
            if rings is not None:
                moved, requests, failed = rings
                rates = tuple(each // SHORT for each in moved.until(last))
                found[key] = RecentUse(rates, requests.until(int(now // LONG)), failed.until(int(now // LONG)))
        return found

    def busy(self, beginning: str, now: float) -> list[str]:
        """The ids that begin so of all that have a rate now."""
        last = int(now // SHORT) - 1
        return [key for key, rings in self._known.items() if key.startswith(beginning) and rings[0].at(last)]

    def unknown_before(self, now: float) -> int:
        """How many buckets of requests of all but proxies are older than this process."""
        return max(0, min(BUCKETS, int(self._began // LONG) - int(now // LONG) + BUCKETS - 1))


def upstream_key(owner: str, number: int) -> str:
    """What stands for an upstream of this pool or proxy; `number` is what its line has (`actors.pools.state`)."""
    return f"{owner}/{number:x}"


class UpstreamUses:
    """What all processes count of pools, and of proxies' own upstreams."""

    def __init__(self, pools: Path, proxies: Path, recent: RecentUses) -> None:
        """The folders are `RunDir.pools` and `RunDir.state`."""
        self._pools, self._proxies = pools, proxies
        self._recent = recent
        self._known: dict[str, dict[int, tuple[int, int]]] = {}
        self._waiting: list[Path] = []
        """Files of proxies that are read in the next samples."""
        self._errors = ThrottledLog(log, "cannot read what is counted of upstreams")

    def sample(self, at: float) -> None:
        """Count what has come since the sample before, at `at` in Unix seconds. The first one of a file only looks.

        Of many proxies some are read at a time.
        """
        try:
            pools = {path.name: uses_of(path) for path in self._pools.glob("pool_*")}
            own = {path.stem: uses_of(path, OWN_TABLE) for path in self._next_of_proxies(pools)}
        except OSError as error:
            self._errors.error(error)
            return
        self._errors.recovered()
        for owner, uses in (pools | own).items():
            if owner in self._known:
                self._count(owner, self._known[owner], uses, at, with_sum=owner in pools)
            self._known[owner] = uses

    def _next_of_proxies(self, pools: Iterable[str]) -> list[Path]:
        if not self._waiting:
            self._waiting = [*self._proxies.glob(f"*.{OWN_TABLE.name}")]
            there = {*pools, *(path.stem for path in self._waiting)}
            self._known = {owner: uses for owner, uses in self._known.items() if owner in there}
        some, self._waiting = self._waiting[:OWN_AT_ONCE], self._waiting[OWN_AT_ONCE:]
        return some

    def _count(
        self,
        owner: str,
        before: dict[int, tuple[int, int]],
        uses: dict[int, tuple[int, int]],
        at: float,
        with_sum: bool,
    ) -> None:
        for number, (used, failed) in uses.items():
            known_used, known_failed = before.get(number, (0, 0))
            added = max(0, used - known_used), max(0, failed - known_failed)
            self._recent.add(upstream_key(owner, number), at, 0, *added)
            if with_sum:
                self._recent.add(owner, at, 0, *added)
