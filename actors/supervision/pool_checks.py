"""The actor that checks the upstreams of pools: it runs while a proxy that is active can use a pool, and for a while
when one is to be checked once."""

from __future__ import annotations

from actors.bus.mailbox import address_of
from actors.bus.messages.common import POOLS, Done
from actors.bus.messages.fleet_objects import POOL_KEY
from actors.bus.messages.pools import CheckPoolOnce, CheckPools
from actors.bus.messages.specs import EgressSpec
from actors.supervision.occasional_actor import OccasionalActor
from actors.supervision.processes.lifecycle import State

KEPT = 120.0
"""Seconds for which the actor runs for a pool that no proxy uses: longer than a check of all its upstreams takes."""
ASKED_MAX = 100


class PoolChecks(OccasionalActor):
    """An `OccasionalActor` that gets the pools."""

    _asked: tuple[bytes, ...] = ()
    """Pools to be checked once, as soon as the actor runs."""
    _kept_until = 0.0
    """The actor runs as long, so that it can check pools that no proxy uses."""
    _wanted = CheckPools(EgressSpec("public_only", (), ()))
    _sent: CheckPools | None = None

    def update(self, pools: dict[str, bytes], egress: EgressSpec) -> None:
        """These pools are to be checked: start the actor, send it what has changed, or have it end."""
        self._wanted = CheckPools(egress, pools)
        runs = self._actor.life.state is State.RUNNING
        is_needed = bool(pools) or self._context.loop.now < self._kept_until
        self.need(is_needed)
        if is_needed and runs and self._sent != self._wanted and self._context.router.tell(POOLS, self._wanted):
            self._sent = self._wanted

    def check_once(self, packed: bytes | None) -> Done:
        """Check the upstreams of this pool, if there is one, whether a proxy uses it or not."""
        if packed is None:
            return Done()
        loop = self._context.loop
        self._kept_until = loop.now + KEPT
        loop.call_later(KEPT, self._let_go)
        if packed not in self._asked:
            self._asked = (*self._asked, packed)[-ASKED_MAX:]
        self.need(True)
        if self._actor.life.state is State.RUNNING:
            self._send_asked(POOLS)
        return Done()

    def _let_go(self) -> None:
        if not self._wanted.pools and self._context.loop.now >= self._kept_until:
            self.need(False)

    def _send_asked(self, to: str) -> None:
        self._asked = tuple(each for each in self._asked if not self._context.router.tell(to, CheckPoolOnce(each)))

    @property
    def in_use(self) -> tuple[str, ...]:
        """The names of the pools that a proxy which is active may use."""
        return tuple(key.removeprefix(POOL_KEY) for key in self._wanted.pools)

    def configure(self, instance: int) -> None:
        """A process is ready for work."""
        to = address_of(POOLS, instance)
        self._sent = self._wanted if self._context.router.tell(to, self._wanted) else None
        self._send_asked(to)
