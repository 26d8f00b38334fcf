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
    """What is so with one proxy: its state, the address that is held, what its process was told last.

    `waiting` says that a back-off runs: nothing is to be started before it ends.
    """

    state: State
    bound: Address | None = None
    configured: Configure | None = None
    waiting: bool = False


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
    """Nothing is left of a proxy that is not wished any more."""

    proxy_id: str


Step = Bind | Start | SendConfiguration | Stop | Forget

_ALIVE = (State.STARTING, State.RUNNING)


def reconcile(desired: Mapping[str, ProxySpec], real: Mapping[str, ActualState], egress: EgressSpec) -> list[Step]:
    """The steps from `real` to `desired`, both by proxy id. Stops come first: they may free an address for a bind."""
    steps: list[Step] = []
    for proxy_id, is_so in real.items():
        spec = desired.get(proxy_id)
        if spec is None or not spec.active or _moved(spec, is_so):
            steps += _down(proxy_id, is_so)
            if spec is None and is_so.state is State.STOPPED:
                steps.append(Forget(proxy_id))
    for spec in desired.values():
        if spec.active:
            steps += _up(spec, real.get(spec.id, ActualState(State.STOPPED)), egress)
    return steps


def _moved(spec: ProxySpec, is_so: ActualState) -> bool:
    return is_so.bound is not None and is_so.bound != (spec.host, spec.port)


def _down(proxy_id: str, is_so: ActualState) -> list[Step]:
    if is_so.state in _ALIVE or is_so.state is State.FAILED or is_so.bound is not None:
        return [Stop(proxy_id)]
    return []


def _up(spec: ProxySpec, is_so: ActualState, egress: EgressSpec) -> list[Step]:
    if is_so.state in _ALIVE and not _moved(spec, is_so):
        wanted = Configure(spec, egress)
        return (
            [SendConfiguration(spec.id, wanted)] if is_so.state is State.RUNNING and is_so.configured != wanted else []
        )
    if is_so.waiting:
        return []
    bind: list[Step] = [] if is_so.bound == (spec.host, spec.port) else [Bind(spec.id, (spec.host, spec.port))]
    return [*bind, Start(spec.id)]
