"""Whose turn it is to have a name looked up: proxies take turns where they have name servers of their own, and in them
clients; none has more than a share of what is under way.

What is under way is cheap, but a name whose servers are silent is so for seconds. When all places are used, the oldest
lookup of who has most of them makes room for who has none: that of a client for a client of the same proxy, that of a
proxy for another proxy.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Protocol

from actors.bus.loop import Loop

RUNNING_MAX = 2048
PROXY_PART, CLIENT_PART = 8, 4
"""A proxy has this part of all places at most; a client of a proxy that of the proxy's."""
RUNNING_OF_CLIENT = 384
WAITING_MAX = 2048
"""Lookups that may wait for one client, or for a proxy where there are several; what comes beyond that is dropped."""
AT_ONCE = 24
"""Lookups that are started in one turn of the loop, so that no flood of names keeps it from its sockets."""
ROOM_AFTER = 1.0

Client = tuple[str, str]
"""Whose lookup it is: the proxy, empty where its name servers are those of all, and the client."""


class QueuedLookup(Protocol):
    """A lookup that waits or runs."""

    @property
    def is_wanted(self) -> bool:
        """False when it runs already, or nothing waits for it any more."""

    def start(self) -> None:
        """Its turn has come."""

    def give_up(self) -> None:
        """End it: others need its place."""


class _ProxyQueue:
    """What waits and runs for one proxy, by client."""

    def __init__(self) -> None:
        self.waiting: OrderedDict[str, deque[QueuedLookup]] = OrderedDict()
        self.running: dict[QueuedLookup, tuple[str, float]] = {}
        self.counts: Counter[str] = Counter()

    @property
    def waits(self) -> int:
        return sum(map(len, self.waiting.values()))

    def pop(self, client: str) -> QueuedLookup:
        """The next job of a client, whose turn is the last one then."""
        row = self.waiting[client]
        job = row.popleft()
        if row:
            self.waiting.move_to_end(client)
        else:
            del self.waiting[client]
        return job

    def oldest(self) -> tuple[QueuedLookup, float]:
        """The first job of the client that has most of them."""
        most = max(self.counts, key=self.counts.__getitem__)
        return next((job, began) for job, (client, began) in self.running.items() if client == most)

    def ended(self, job: QueuedLookup) -> None:
        """It runs no longer."""
        client, _began = self.running.pop(job)
        self.counts[client] -= 1
        if not self.counts[client]:
            del self.counts[client]


class FairQueue:
    """`add` what waits; `ended` is to be called for each that was started. `by_proxy`: proxies have shares, too."""

    def __init__(self, loop: Loop, running_max: int = RUNNING_MAX, by_proxy: bool = False) -> None:
        self._loop = loop
        self._running_max = running_max
        self._of_proxy = max(1, running_max // PROXY_PART) if by_proxy else running_max
        self._of_client = min(RUNNING_OF_CLIENT, max(1, self._of_proxy // CLIENT_PART))
        self._by_proxy = by_proxy
        self._proxies: OrderedDict[str, _ProxyQueue] = OrderedDict()
        self._running: dict[QueuedLookup, str] = {}
        self._scheduled = False

    def add(self, client: Client, job: QueuedLookup) -> bool:
        """Let a job wait for its turn; False when too many wait for this client, or this proxy."""
        proxy = self._proxies.setdefault(client[0], _ProxyQueue())
        most = WAITING_MAX // CLIENT_PART if self._by_proxy else WAITING_MAX
        if len(proxy.waiting.get(client[1], ())) >= most or (self._by_proxy and proxy.waits >= WAITING_MAX):
            return False
        proxy.waiting.setdefault(client[1], deque()).append(job)
        self._schedule()
        return True

    def ended(self, job: QueuedLookup) -> None:
        """A job that was started, or only waited, has ended."""
        name = self._running.pop(job, None)
        if name is not None:
            self._proxies[name].ended(job)
            self._forget(name)
        if self._proxies:
            self._schedule()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(proxy.waits for proxy in self._proxies.values())

    def _forget(self, name: str) -> None:
        if not self._proxies[name].running and not self._proxies[name].waiting:
            del self._proxies[name]

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        for _ in range(AT_ONCE):
            found = self._next()
            if found is None:
                return
            name, client = found
            proxy = self._proxies[name]
            job = proxy.pop(client)
            self._proxies.move_to_end(name)
            if job.is_wanted:
                self._running[job] = name
                proxy.running[job] = client, self._loop.now
                proxy.counts[client] += 1
                job.start()
            else:
                self._forget(name)
        self._schedule()

    def _next(self) -> Client | None:
        """Who has the next turn."""
        for name, proxy in self._proxies.items():
            client = self._next_of(proxy)
            if client is not None:
                return name, client
        return None

    def _next_of(self, proxy: _ProxyQueue) -> str | None:
        """The client of this proxy that has the next turn."""
        if len(self._running) < self._running_max and len(proxy.running) < self._of_proxy:
            return next((each for each in proxy.waiting if proxy.counts[each] < self._of_client), None)
        newcomer = next((each for each in proxy.waiting if not proxy.counts[each]), None)
        return newcomer if newcomer is not None and self._made_room(proxy) else None

    def _made_room(self, proxy: _ProxyQueue) -> bool:
        """End the oldest lookup of this proxy, of another one where it has none, unless it has just begun."""
        most = proxy if proxy.running else max(self._proxies.values(), key=lambda each: len(each.running))
        job, began = most.oldest()
        if self._loop.now - began < ROOM_AFTER:
            return False
        job.give_up()
        return True
