"""Whose turn it is to have a name looked up: clients take turns, and none has more than a share of what is under way.

What is under way is cheap, but a name whose servers are silent is so for seconds. When all places are used, the oldest
lookup of the client that has most of them makes room for a client that has none.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Protocol

from actors.bus.loop import Loop

RUNNING_MAX = 2048
RUNNING_OF_CLIENT = 384
WAITING_MAX = 2048
"""Lookups that may wait for one client; what comes beyond that is dropped."""
AT_ONCE = 24
"""Lookups that are started in one turn of the loop, so that no flood of names keeps it from its sockets."""
ROOM_AFTER = 1.0


class Job(Protocol):
    """A lookup that waits or runs."""

    @property
    def is_wanted(self) -> bool:
        """False when it runs already, or nothing waits for it any more."""

    def start(self) -> None:
        """Its turn has come."""

    def give_up(self) -> None:
        """End it: others need its place."""


class FairQueue:
    """`add` what waits; `ended` is to be called for each that was started."""

    def __init__(self, loop: Loop, running_max: int = RUNNING_MAX) -> None:
        self._loop = loop
        self._running_max = running_max
        self._of_client = min(RUNNING_OF_CLIENT, max(1, running_max // 4))
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()
        self._running: dict[Job, tuple[str, float]] = {}
        self._counts: Counter[str] = Counter()
        self._scheduled = False

    def add(self, client: str, job: Job) -> bool:
        """Let a job wait for its turn; False when too many wait for this client."""
        row = self._waiting.setdefault(client, deque())
        if len(row) >= WAITING_MAX:
            return False
        row.append(job)
        self._schedule()
        return True

    def ended(self, job: Job) -> None:
        """A job that was started has ended."""
        client, _began = self._running.pop(job, ("", 0.0))
        self._counts[client] -= 1
        if self._counts[client] <= 0:
            del self._counts[client]
        if self._waiting:
            self._schedule()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        for _ in range(AT_ONCE):
            client = self._next_client()
            if client is None:
                return
            job = self._pop(client)
            if job.is_wanted:
                self._running[job] = client, self._loop.now
                self._counts[client] += 1
                job.start()
        self._schedule()

    def _next_client(self) -> str | None:
        full = len(self._running) >= self._running_max
        for client in self._waiting:
            if self._counts[client] >= self._of_client:
                continue
            if not full or (not self._counts[client] and self._made_room()):
                return client
        return None

    def _made_room(self) -> bool:
        """End the oldest lookup of the client with most of them, unless it has just begun."""
        most = max(self._counts, key=self._counts.__getitem__)
        job, began = next((job, began) for job, (client, began) in self._running.items() if client == most)
        if self._loop.now - began < ROOM_AFTER:
            return False
        job.give_up()
        return True

    def _pop(self, client: str) -> Job:
        row = self._waiting[client]
        job = row.popleft()
        if row:
            self._waiting.move_to_end(client)
        else:
            del self._waiting[client]
        return job
