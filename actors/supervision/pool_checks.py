"""The actor that checks the upstreams of pools: it runs while a proxy that is active can use a pool."""

from __future__ import annotations

from actors.bus.mailbox import address_of
from actors.bus.messages.common import POOLS
from actors.bus.messages.fleet_objects import POOL_KEY
from actors.bus.messages.pools import CheckPools
from actors.bus.messages.specs import EgressSpec
from actors.supervision.occasional_actor import OccasionalActor
from actors.supervision.processes.lifecycle import State


class PoolChecks(OccasionalActor):
    """An `OccasionalActor` that gets the pools."""

    _wanted = CheckPools(EgressSpec("public_only", (), ()))
    _sent: CheckPools | None = None

    def update(self, pools: dict[str, bytes], egress: EgressSpec) -> None:
        """These pools are to be checked: start the actor, send it what has changed, or have it end."""
        self._wanted = CheckPools(egress, pools)
        runs = self._actor.life.state is State.RUNNING
        self.need(bool(pools))
        if pools and runs and self._sent != self._wanted and self._context.router.tell(POOLS, self._wanted):
            self._sent = self._wanted

    @property
    def in_use(self) -> tuple[str, ...]:
        """The names of the pools that a proxy which is active may use."""
        return tuple(key.removeprefix(POOL_KEY) for key in self._wanted.pools)

    def configure(self, instance: int) -> None:
        """A process is ready for work."""
        to = address_of(POOLS, instance)
        self._sent = self._wanted if self._context.router.tell(to, self._wanted) else None
