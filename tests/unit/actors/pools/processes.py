"""What the processes of tests do: a module without test libraries, so that they start soon."""

from __future__ import annotations

import time
from pathlib import Path

from actors.pools.state import pool_state
from tests.kit.wait import wait_until
from tests.unit.actors.pools.pools import pool


def ban_and_fail(folder: Path, until_time: float) -> None:
    """One upstream is banned, another fails."""
    state = pool_state(folder, pool("a", "b"))
    state.slots[1].ban(until_time)
    state.slots[0].failed(time.monotonic(), "connect", "unreachable", "refused")


def write_often(folder: Path, times: int) -> None:
    """Failures and successes of one upstream, so many times."""
    state = pool_state(folder, pool("a", "b"))
    for number in range(times):
        state.slots[0].record_latency(1.0, 0.5)
        state.slots[0].failed(100.0 + number, "connect", "unreachable", "refused")
        state.slots[0].succeeded(100.0 + number)
    state.slots[1].succeeded(1.0)


def make_at_once(folder: Path, ready: Path) -> None:
    """Make the file as soon as `ready` is there."""
    wait_until(ready.exists, "the signal to start")
    pool_state(folder, pool("a", "b")).slots[0].count_check(failed=False)


def ban_often(folder: Path, times: int) -> None:
    """Ban one upstream as the API does, so many times, and expect that it holds."""
    for number in range(times):
        state = pool_state(folder, pool("a", "b", revision=number + 2))
        state.ban(state.slots[0], 1000.0 + number)
        assert state.slots[0].health(0.0).banned_until == 1000.0 + number
