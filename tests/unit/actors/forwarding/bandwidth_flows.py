"""Processes that divide the bandwidth of an account, and what flows through them."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from actors.bus.loop import Loop
from actors.forwarding.limits.shared_bandwidth import divide
from actors.forwarding.limits.token_bucket import TokenBucket
from actors.state.live_state import LiveState

RATE = 1_000_000
STEP = 0.005


class HasLoop(Protocol):
    @property
    def loop(self) -> Loop: ...


class Flow:
    """Moves all that it may, a piece at a time, while it is `on`; or `at_most` bytes a second."""

    def __init__(self, worker: Worker, at_most: int | None = None) -> None:
        self.moved = 0
        self.on = True
        self._worker = worker
        self._at_most = at_most
        self._began = worker.world.loop.now
        self._waits = False
        self.go_on()

    def go_on(self) -> None:
        self._waits = False
        bucket, now = self._worker.bucket, self._worker.world.loop.now
        while self.on and (share := bucket.available()):
            if self._at_most is not None:
                share = min(share, int((now - self._began) * self._at_most) - self.moved)
                if share <= 0:
                    self._worker.world.loop.call_later(STEP, self.go_on)
                    return
            bucket.consume(share)
            self.moved += share
        if self.on and not self._waits:
            self._waits = True
            bucket.wait(self.go_on)


class Worker:
    def __init__(self, world: HasLoop, state: LiveState, rate: int) -> None:
        self.world = world
        self.bucket, self.other_way = TokenBucket(world.loop, rate), TokenBucket(world.loop, 0)
        self.state = state
        divide(world.loop, partial(state.account, "acc_1"), self.bucket, self.other_way)
