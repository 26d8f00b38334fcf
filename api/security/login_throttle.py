"""Counting failed sign-ins, so that passwords can't be tried out.

After `limit` failures within `WINDOW` from one address for one user name, that pair is locked for `LOCK`. The user can
still sign in from elsewhere, so an attacker can't lock users out. The IPv6 addresses of one /64 are one
(`actors.net.client_key`).

The nodes of a fleet count together, in its database, which has digests of pairs; one that is cut off counts by itself.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from actors.net.client_key import client_key
from api.fleet import ThisNode
from config.model.fields import name_key

WINDOW = 5 * 60.0
LOCK = 15 * 60.0
REMEMBERED = 20_000
"""Pairs that are counted at the same time; with more of them the one that failed longest ago is forgotten."""


@dataclass(slots=True)
class _Record:
    failures: list[float] = field(default_factory=list)
    locked_until: float = 0.0


class LoginThrottle:
    """The failures of all pairs, in memory. Thread-safe."""

    def __init__(
        self,
        limit: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        node: Callable[[], ThisNode] = ThisNode,
        kind: str = "user",
    ) -> None:
        """`limit` says after how many failures a pair is locked, `kind` whose names they are."""
        self._node = node
        self._kind = kind
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._records: OrderedDict[tuple[str, str], _Record] = OrderedDict()

    def locked_for(self, username: str, address: str) -> int:
        """Whole seconds until this pair may try again; 0 when it may now."""
        pair = _pair(username, address)
        over_nodes = self._node().requests.locked_for(self._digest(*pair))
        with self._lock:
            record = self._records.get(pair)
            here = 0.0 if record is None else record.locked_until - self._clock()
            return max(0, math.ceil(max(here, over_nodes)))

    def failed(self, username: str, address: str) -> bool:
        """Count a failure; True when this one locked the pair."""
        now = self._clock()
        pair = _pair(username, address)
        of_all = self._node().requests.count_failure(self._digest(*pair), self._digest(pair[0]), self._limit())
        with self._lock:
            record = self._records.setdefault(pair, _Record())
            self._records.move_to_end(pair)
            record.failures = [each for each in record.failures if each > now - WINDOW] + [now]
            locked = len(record.failures) >= self._limit() if of_all is None else of_all
            if locked:
                record.failures = []
                record.locked_until = now + LOCK if of_all is None else 0.0  # the fleet's own lock may be lifted
            if len(self._records) > REMEMBERED:
                self._records.popitem(last=False)
            return locked

    def succeeded(self, username: str, address: str) -> None:
        """Forget the failures of a pair."""
        pair = _pair(username, address)
        self._node().requests.forget_failures(pairs=[self._digest(*pair)])
        with self._lock:
            self._records.pop(pair, None)

    def forget(self, username: str) -> None:
        """Forget the failures of this name from all addresses, and lift the locks that came of them."""
        name = _name(username)
        self._node().requests.forget_failures(names=[self._digest(name)])
        with self._lock:
            for pair in [each for each in self._records if each[0] == name]:
                del self._records[pair]

    def _digest(self, *parts: str) -> str:
        return hashlib.sha256("\0".join((self._kind, *parts)).encode("utf-8", "surrogatepass")).hexdigest()


def _pair(username: str, address: str) -> tuple[str, str]:
    return _name(username), client_key(address)


def _name(username: str) -> str:
    return name_key(username)[:256]
