"""The upstreams that requests of one proxy may go through: its own or those of its pool, and pools that policies name.

A pool that only policies name gets its upstreams at its first use. Nothing of `actors.forwarding.upstreams` is imported
before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from actors.bus.messages.specs import EgressSpec, PoolSpec, ProxySpec, UpstreamsSpec

if TYPE_CHECKING:
    from actors.forwarding.upstreams.upstream_set import UpstreamContext, UpstreamSet
    from actors.pools.state import OwnStates
    from actors.state.live_state import LiveState

INLINE = ""
"""Stands for the upstreams of the proxy itself, where names of pools do."""


class UpstreamSets:
    """All sets of upstreams of one proxy, by the name of the pool. `own` is the proxy's; None: it has none."""

    def __init__(self, shared: Callable[[OwnStates], UpstreamContext], state: LiveState, states: Path) -> None:
        """`shared` makes what the sets need of the actor; it is called at the first use of one.

        `state` is what the workers of the proxy have together, `states` the folder with the states of pools.
        """
        self._shared = shared
        self._state = state
        self._own_states: OwnStates | None = None
        self._states = states
        self.own: UpstreamSet | None = None
        self._configured: Mapping[str, UpstreamsSpec | PoolSpec] = {}
        self._made: dict[str, UpstreamSet] = {}
        self._egress: EgressSpec | None = None
        self._workers = 1

    def configure(self, spec: ProxySpec, pools: Iterable[PoolSpec], egress: EgressSpec, moved: bool) -> bool:
        """Apply a configuration. `moved`: connections leave from another address, so all of it is begun anew.

        Upstreams that stay in the same pool keep their state. Returns whether a set that is in use has changed, so that
        what is kept for reuse belongs to others.
        """
        before, self._configured = self._configured, _configured(spec, pools)
        self._egress, changed = egress, moved
        self._workers = spec.workers or os.cpu_count() or 1
        for name, known in tuple(self._made.items()):
            now = self._configured.get(name)
            if moved or now is None or now != before[name]:
                self._replace(name, known)
                changed = True
            else:
                known.guard_by(egress)
        own, self.own = self.own, self.of_pool(spec.pool or INLINE)
        return changed or own is not self.own

    def of_pool(self, name: str) -> UpstreamSet | None:
        """The upstreams of the pool of this name; None: there is no such pool."""
        found = self._made.get(name)
        if found is None and name in self._configured:
            found = self._made[name] = self._new(name, None)
        return found

    def _replace(self, name: str, before: UpstreamSet) -> None:
        before.stop()
        del self._made[name]
        if name in self._configured:
            self._made[name] = self._new(name, before)
        before.succeeded_by(self._made.get(name))

    def _new(self, name: str, previous: UpstreamSet | None) -> UpstreamSet:
        from actors.forwarding.upstreams.upstream_set import UpstreamSet  # only with upstreams
        from actors.pools.state import OwnStates, identity
        from actors.pools.upstream import OWN_SPANS

        spec, egress = self._configured[name], self._egress
        assert egress is not None
        if self._own_states is None:
            self._own_states = OwnStates(self._state, OWN_SPANS)
            own = self._configured.get(INLINE)
            self._own_states.end_others(
                map(identity, own.entries if isinstance(own, UpstreamsSpec) else ()), self._workers
            )
        shared = self._shared(self._own_states)
        if isinstance(spec, UpstreamsSpec):
            return UpstreamSet(shared, spec, previous, egress)
        from actors.forwarding.upstreams.pool_upstream_set import PoolUpstreamSet  # only with pools

        return PoolUpstreamSet(shared, spec, previous, egress, self._states)

    def __repr__(self) -> str:
        return f"<UpstreamSets: {', '.join(name or 'inline' for name in self._made) or 'none'}>"


def _configured(spec: ProxySpec, pools: Iterable[PoolSpec]) -> Mapping[str, UpstreamsSpec | PoolSpec]:
    found: dict[str, UpstreamsSpec | PoolSpec] = {each.name: each for each in pools}
    if spec.pool:
        found.setdefault(spec.pool, PoolSpec("", spec.pool, 0))  # without upstreams nothing goes directly instead
    elif spec.upstreams.entries:
        found[INLINE] = spec.upstreams
    return found
