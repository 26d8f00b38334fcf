"""The difference between desired and actual state as steps: a pure function.

It decides and does nothing; `actors.supervision.actor_supervisor` carries the steps out in order and calls again when
something has changed. It may be called at any time: where desired and actual state agree it returns no steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import EgressSpec, ProxySpec
from actors.supervision.processes.lifecycle import State

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ActualState:
    """The actual state of one proxy: its actor's, the address that is kept, what its process was configured with last.

    While it `backs_off`, nothing is to be started.
    """

    state: State
    bound: Address | None = None
    configured: Configure | None = None
    backs_off: bool = False


@dataclass(frozen=True, slots=True)
class Bind:
    """Listen for the proxy at its address; if that is impossible the proxy has failed, and its `Start` is left out."""

    proxy_id: str
    address: Address


@dataclass(frozen=True, slots=True)
class Start:
    """Make a process for the proxy on its socket."""

    proxy_id: str


@dataclass(frozen=True, slots=True)
class SendConfiguration:
    """Send the process its configuration."""

    proxy_id: str
    configure: Configure


@dataclass(frozen=True, slots=True)
class Stop:
    """Have the process drain and end, and close the listener."""

    proxy_id: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing is left of a proxy that is gone."""

    proxy_id: str


Step = Bind | Start | SendConfiguration | Stop | Forget

_ALIVE = (State.STARTING, State.RUNNING)


def reconcile(desired: Mapping[str, ProxySpec], actual: Mapping[str, ActualState], egress: EgressSpec) -> list[Step]:
    """The steps from `actual` to `desired`, both by proxy id. Stops come first: they may free an address for a bind."""
    steps: list[Step] = []
    for proxy_id, now in actual.items():
        spec = desired.get(proxy_id)
        if spec is None or not spec.active or _moved(spec, now):
            steps += _down(proxy_id, now)
            if spec is None and now.state is State.STOPPED:
                steps.append(Forget(proxy_id))
    for spec in desired.values():
        if spec.active:
            steps += _up(spec, actual.get(spec.id, ActualState(State.STOPPED)), egress)
    return steps


def _moved(spec: ProxySpec, now: ActualState) -> bool:
    return now.bound is not None and now.bound != (spec.host, spec.port)


def _down(proxy_id: str, now: ActualState) -> list[Step]:
    if now.state in _ALIVE or now.state is State.FAILED or now.bound is not None:
        return [Stop(proxy_id)]
    return []


def _up(spec: ProxySpec, now: ActualState, egress: EgressSpec) -> list[Step]:
    if now.state in _ALIVE and not _moved(spec, now):
        configure = Configure(spec, egress)
        is_current = now.state is not State.RUNNING or now.configured == configure
        return [] if is_current else [SendConfiguration(spec.id, configure)]
    if now.backs_off:
        return []
    bind: list[Step] = [] if now.bound == (spec.host, spec.port) else [Bind(spec.id, (spec.host, spec.port))]
    return [*bind, Start(spec.id)]
