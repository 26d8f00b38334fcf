"""Brings proxies to their desired state, as `actors.supervision.reconcile` decides.

What is to be done for a proxy depends on nothing but its own desired and actual state and on the egress guard, so a
change of one looks at no other, and a change that concerns all looks at those with processes: one that sleeps gets its
configuration when it wakes. Only what is to be bound for the first time, at a start or after an import, may be
thousands; it is done some in each turn, so that the supervisor does all else meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from actors.bus.loop import Loop
from actors.supervision.callbacks import CountdownLatch, noop
from actors.supervision.config import EgressConfigPublisher
from actors.supervision.desired_proxies import DesiredProxies, worker_count
from actors.supervision.occasional_actor import OccasionalActor, PoolChecks
from actors.supervision.processes.proxy_actors import ProxyActors
from actors.supervision.reconcile import reconcile, reconcile_one

SLICE = 100
"""Proxies of which the sockets are bound in one turn; each takes about a dozen system calls."""


class Reconciler:
    """`is_ending` returns True when nothing is started any more."""

    def __init__(
        self,
        loop: Loop,
        desired: DesiredProxies,
        actors: ProxyActors,
        egress: EgressConfigPublisher,
        pools: PoolChecks,
        proxy_resolver: OccasionalActor,
        is_ending: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._desired = desired
        self._actors = actors
        self._egress = egress
        self._pools = pools
        self._proxy_resolver = proxy_resolver
        self._is_ending = is_ending
        self._new: deque[str] = deque()
        self._when_all: list[Callable[[], None]] = []

    @property
    def is_ending(self) -> bool:
        """True when nothing is started any more."""
        return self._is_ending()

    def reconcile(self, proxy_ids: Collection[str], quiet: Callable[[], None] = noop) -> None:
        """Bring these to their desired state. `quiet` is called when what has to stop accepting has stopped."""
        latch = CountdownLatch(quiet)
        if not self.is_ending:
            self._execute(proxy_ids, latch)
            self._pools.update(self._desired.pools_in_use(), self._egress.published)
            self._proxy_resolver.need(self._desired.some_name_servers)
            self.listeners_changed()
        latch.release()

    def reconcile_awake(self, quiet: Callable[[], None] = noop) -> None:
        """As `reconcile`, of all that have processes: something has changed that all of them have."""
        self.reconcile(tuple(self._actors.by_id), quiet)

    def wake(self, proxy_id: str) -> None:
        """Bring this one, which is to have a process, to its desired state."""
        if not self.is_ending:
            now, desired, egress = self._actors.actual_of(proxy_id), self._desired, self._egress.published
            steps = reconcile_one(proxy_id, desired.get(proxy_id), now, egress, desired.configuration, worker_count)
            self._actors.execute(steps, CountdownLatch(noop))

    def bring_up(self, proxy_ids: Collection[str], then: Callable[[], None]) -> None:
        """Bring these to their desired state, some in each turn, and call `then` when these and all before them are.

        It is never called when the program ends before.
        """
        begins = not self._new and not self._when_all
        self._new.extend(proxy_ids)
        self._when_all.append(then)
        if begins:
            self._bring_up_some()

    def listeners_changed(self) -> None:
        """Listeners may have been added or removed."""
        self._egress.refresh(len(self._actors.by_id) + len(self._new))

    def _bring_up_some(self) -> None:
        if self.is_ending:
            return
        self.reconcile([self._new.popleft() for _ in range(min(SLICE, len(self._new)))])
        if self._new:
            self._loop.call_soon(self._bring_up_some)
            return
        calls, self._when_all = self._when_all, []
        for call in calls:
            call()

    def _execute(self, proxy_ids: Collection[str], latch: CountdownLatch) -> None:
        known, egress = self._desired.specs, self._egress.published
        specs = {each: known[each] for each in proxy_ids if each in known}
        actual = {each: self._actors.actual_of(each) for each in proxy_ids}
        self._actors.execute(reconcile(specs, actual, egress, self._desired.configuration, worker_count), latch)
