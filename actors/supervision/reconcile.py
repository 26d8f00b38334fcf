"""The difference between desired and actual state as steps: a pure function.

It decides and does nothing; `actors.supervision.actor_supervisor` carries the steps out in order and calls again when
something has changed. It may be called at any time: where desired and actual state agree it returns no steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import EgressSpec, ProxySpec
from actors.supervision.listeners.listener import Address
from actors.supervision.processes.actor_spec import WorkerId
from actors.supervision.processes.lifecycle import ActorState

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

    One that is `asleep` has none but those that drain, and needs none. When one wakes its first worker takes over what
    those before have left: the others are started when it `takes_over` no more.
    """

    bound: Address | None = None
    workers: Mapping[int, ActualState] = field(default_factory=dict)
    asleep: bool = False
    takes_over: bool = False


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


def reconcile_one(
    proxy_id: str,
    spec: ProxySpec | None,
    now: ActualProxy,
    egress: EgressSpec,
    configuration: Configuration = Configure,
    count: Count = one_worker,
) -> list[Step]:
    """As `reconcile`, for one proxy: `spec` is None when it is gone."""
    desired = {} if spec is None else {proxy_id: spec}
    return reconcile(desired, {proxy_id: now}, egress, configuration, count)


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
        elif not each.backs_off and not (index and now.takes_over):
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
