"""The checks of one pool in the test's own thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.bus.loop import Loop
from actors.bus.messages.common import Problem
from actors.bus.messages.specs import EgressSpec, PoolSpec, UpstreamSpec, UpstreamsSpec
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.net.resolver import Resolver, new_threads
from actors.forwarding.upstreams.attempt import access_to_upstreams
from actors.pools.checked_pool import CheckedPool
from actors.pools.slot import UpstreamSlot
from actors.pools.state import pool_state
from actors.problems import ActiveProblems

COOLDOWN = (("connect", 0.1, 0.2), ("407", 60.0, 600.0), ("429", 30.0, 300.0), ("5xx", 5.0, 60.0))
DEADLINE = 120.0


def pool_of(*ports: int, revision: int = 1, interval: float = 0.2, **changes: Any) -> PoolSpec:
    """HTTP upstreams on these ports of loopback."""
    entries = tuple(UpstreamSpec(f"up{index}", "http", "127.0.0.1", port) for index, port in enumerate(ports))
    given = {"entries": entries, "check_interval": interval, "check_timeout": 5.0, **changes}
    return PoolSpec("pool_1", "paris", revision, UpstreamsSpec(**given), cooldown=COOLDOWN)


class Checking:
    """`begun` and `over` have the subjects of problems as they come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pools"
        self.loop = Loop()
        self.begun: list[str] = []
        self.over: list[str] = []
        self.active: tuple[Problem, ...] = ()
        self._problems = ActiveProblems(self.loop, time.time, self._reported)
        egress = EgressSpec("public_only", ("127.0.0.0/8",), ())
        self.dialer = Dialer(self.loop, Resolver(self.loop, new_threads(self.loop)), access_to_upstreams(egress))
        self.pool: CheckedPool | None = None

    def configure(self, spec: PoolSpec) -> CheckedPool:
        """Check this pool, as the actor does at each change."""
        if self.pool is not None:
            self.pool.stop()
        state = pool_state(self.folder, spec, decides=True)
        self.pool = CheckedPool(self.loop, self.dialer, self._problems, spec, state, self.pool)
        return self.pool

    def slots_of_another_process(self, spec: PoolSpec) -> tuple[UpstreamSlot, ...]:
        """What another process sees."""
        return pool_state(self.folder, spec).slots

    def until(self, condition: Callable[[], object]) -> None:
        """Turn the loop, and observe as the actor does, until something holds."""
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end
            self.turn()

    def turn(self) -> None:
        self.loop.turn(0.02)
        if self.pool is not None:
            self.pool.observe()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.stop()
        self.loop.close()

    def _reported(self, problems: tuple[Problem, ...], over: tuple[Problem, ...]) -> None:
        known = {each.subject for each in self.active}
        self.begun += [each.subject for each in problems if each.subject not in known]
        self.over += [each.subject for each in over]
        self.active = problems
