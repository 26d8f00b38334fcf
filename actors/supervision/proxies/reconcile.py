"""Brings proxies to their desired state. `reconcile` returns the difference to the actual state as steps: a pure
function, which decides and does nothing. It may be called at any time: where the two agree it returns no steps.

What is to be done for a proxy depends on nothing but its own desired and actual state and on the egress guard, so a
change of one looks at no other, and a change that concerns all looks at those with processes: one that sleeps gets its
configuration when it wakes. Only what is to be bound for the first time, at a start or after an import, may be
thousands; it is done some in each turn, so that the supervisor does all else meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from actors.bus.loop import Loop
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import EgressSpec, ProxySpec
from actors.supervision.callbacks import CountdownLatch, noop
from actors.supervision.lifecycle import ActorState
from actors.supervision.listeners.registry import Address
from actors.supervision.occasional_actors import OccasionalActor, PoolChecks
from actors.supervision.processes.actor_specs import WorkerId
from actors.supervision.proxies.desired_proxies import DesiredProxies, worker_count
from actors.supervision.settings_updates import EgressConfigPublisher

if TYPE_CHECKING:  # it carries out the steps
    from actors.supervision.proxies.proxy_actors import ProxyActors

Configuration = Callable[[ProxySpec, EgressSpec], Configure]
Count = Callable[[ProxySpec], int]


@dataclass(frozen=True, slots=True)
class ActualState:
    """The actual state of one worker: its actor's, and what its process was configured with last.

    While it `backs_off`, nothing is to be started.
    """

    state: ActorState
    configured: Configure | None = None
    backs_off: bool = False


@dataclass(frozen=True, slots=True)
class ActualProxy:
    """The actual state of one proxy: the address that is kept, and its workers by index.

    One that is `asleep` has none but those that drain, and needs none.
    """

    bound: Address | None = None
    workers: Mapping[int, ActualState] = field(default_factory=dict)
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class Bind:
    """Listen for the proxy at its address; if that is impossible the proxy has failed, and each `Start` is left out."""

    proxy_id: str
    address: Address


@dataclass(frozen=True, slots=True)
class Start:
    """Make a process of the worker on the proxy's socket."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Watch:
    """The proxy sleeps: watch the sockets that it has now."""

    proxy_id: str


@dataclass(frozen=True, slots=True)
class SendConfiguration:
    """Send the process of the worker its configuration."""

    worker: WorkerId
    configure: Configure


@dataclass(frozen=True, slots=True)
class StopProxy:
    """Have all processes of the proxy drain and end, and close the listener."""

    proxy_id: str


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Have this process drain and end; the listener stays, for the others."""

    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing is left of a worker that is not desired."""

    worker: WorkerId


Step = Bind | Start | Watch | SendConfiguration | StopProxy | StopWorker | Forget

_ALIVE = (ActorState.STARTING, ActorState.RUNNING)
_NOTHING = ActualProxy()
_STOPPED = ActualState(ActorState.STOPPED)


def one_worker(_spec: ProxySpec) -> int:
    """The number of workers of a proxy that says nothing about it."""
    return 1


def reconcile(
    desired: Mapping[str, ProxySpec],
    actual: Mapping[str, ActualProxy],
    egress: EgressSpec,
    configuration: Configuration = Configure,
    count: Count = one_worker,
) -> list[Step]:
    """The steps from `actual` to `desired`, both by proxy id. Stops come first: they may free an address for a bind.

    `configuration` makes what the processes of a proxy should be configured with, `count` is how many it has.
    """
    steps: list[Step] = []
    for proxy_id, now in actual.items():
        steps += _down(proxy_id, desired.get(proxy_id), now)
    for spec in desired.values():
        if spec.active:
            steps += _up(spec, actual.get(spec.id, _NOTHING), egress, configuration, count(spec))
    return steps


def _moved(spec: ProxySpec, now: ActualProxy) -> bool:
    return now.bound is not None and now.bound != spec.address


def _down(proxy_id: str, spec: ProxySpec | None, now: ActualProxy) -> list[Step]:
    if spec is not None and spec.active and (now.asleep or not _moved(spec, now)):
        return []
    steps: list[Step] = []
    if now.bound is not None or any(each.state in (*_ALIVE, ActorState.FAILED) for each in now.workers.values()):
        steps.append(StopProxy(proxy_id))
    return [*steps, *_forget(proxy_id, now, 0)] if spec is None else steps


def _up(spec: ProxySpec, now: ActualProxy, egress: EgressSpec, configuration: Configuration, count: int) -> list[Step]:
    if now.asleep and spec.sleep_after:
        return [] if now.bound == spec.address else [Bind(spec.id, spec.address), Watch(spec.id)]
    configure, moved = configuration(spec, egress), _moved(spec, now)
    steps: list[Step] = []
    starts: list[Step] = []
    for index in range(count):
        each, worker = now.workers.get(index, _STOPPED), WorkerId(spec.id, index)
        if each.state in _ALIVE and not moved:
            if each.state is ActorState.RUNNING and each.configured != configure:
                steps.append(SendConfiguration(worker, configure))
        elif not each.backs_off:
            starts.append(Start(worker))
    if now.bound is None and any(each.backs_off for each in now.workers.values()):
        starts = []  # the address could not be bound a moment ago
    elif starts and now.bound != spec.address:
        steps.append(Bind(spec.id, spec.address))
    return [*steps, *starts, *_fewer(spec.id, now, count), *_forget(spec.id, now, count)]


def _fewer(proxy_id: str, now: ActualProxy, count: int) -> list[Step]:
    """Workers beyond the desired number end."""
    surplus = [index for index, each in now.workers.items() if index >= count]
    ending = (ActorState.STOPPED, ActorState.DRAINING)
    return [StopWorker(WorkerId(proxy_id, index)) for index in surplus if now.workers[index].state not in ending]


def _forget(proxy_id: str, now: ActualProxy, count: int) -> list[Step]:
    """Workers beyond the desired number that have ended."""
    return [
        Forget(WorkerId(proxy_id, index))
        for index, each in now.workers.items()
        if index >= count and each.state is ActorState.STOPPED
    ]


BIND_BATCH = 100
"""Proxies of which the sockets are bound in one turn; each takes about a dozen system calls."""


@dataclass(slots=True, eq=False)
class Reconciler:
    """`is_ending` returns True when nothing is started any more."""

    loop: Loop
    desired: DesiredProxies
    actors: ProxyActors
    egress: EgressConfigPublisher
    pools: PoolChecks
    proxy_resolver: OccasionalActor
    is_ending: Callable[[], bool]
    _new: deque[str] = field(default_factory=deque)
    _when_all: list[Callable[[], None]] = field(default_factory=list)

    def reconcile(self, proxy_ids: Collection[str], quiet: Callable[[], None] = noop) -> None:
        """Bring these to their desired state. `quiet` is called when what has to stop accepting has stopped."""
        latch = CountdownLatch(quiet)
        if not self.is_ending():
            self._execute(proxy_ids, latch)
            self.pools.update(self.desired.pools_in_use(), self.egress.published)
            self.proxy_resolver.need(self.desired.some_name_servers)
            self.listeners_changed()
        latch.release()

    def reconcile_awake(self, quiet: Callable[[], None] = noop) -> None:
        """As `reconcile`, of all that have processes: something has changed that all of them have."""
        self.reconcile(tuple(self.actors.by_id), quiet)

    def wake(self, proxy_id: str) -> None:
        """Bring this one, which is to have a process, to its desired state."""
        if not self.is_ending():
            self._execute([proxy_id], CountdownLatch(noop))

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
        self.egress.refresh(len(self.actors.by_id) + len(self._new))

    def _bring_up_some(self) -> None:
        if self.is_ending():
            return
        self.reconcile([self._new.popleft() for _ in range(min(BIND_BATCH, len(self._new)))])
        if self._new:
            self.loop.call_soon(self._bring_up_some)
            return
        calls, self._when_all = self._when_all, []
        for call in calls:
            call()

    def _execute(self, proxy_ids: Collection[str], latch: CountdownLatch) -> None:
        known, egress = self.desired.specs, self.egress.published
        specs = {each: known[each] for each in proxy_ids if each in known}
        actual = {each: self.actors.actual_of(each) for each in proxy_ids}
        self.actors.execute(reconcile(specs, actual, egress, self.desired.configuration, worker_count), latch)
