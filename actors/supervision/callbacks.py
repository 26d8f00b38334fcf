"""What waits for something: a callback that counts only once, a countdown latch, replies that wait for the start of a
proxy, and the phases of a shutdown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec

from actors.bus.loop import Loop
from actors.supervision.lifecycle import ActorState

if TYPE_CHECKING:  # it uses this module
    from actors.supervision.processes.managed_actor import ManagedActor

P = ParamSpec("P")


class CountdownLatch:
    """Calls `then` once, when `release` and every callback that `add` returned were called."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._count = 1

    def add(self) -> Callable[[], None]:
        """Wait for one more thing: the result is to be called when it has happened; only the first call counts."""
        self._count += 1
        return call_once(self._count_down)

    def release(self) -> None:
        """All has been added; call this once."""
        self._count_down()

    def _count_down(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._then()


def call_once(call: Callable[P, None]) -> Callable[P, None]:
    """`call`, of which only the first call counts."""
    called = False

    def first(*args: P.args, **kwargs: P.kwargs) -> None:
        nonlocal called
        if not called:
            called = True
            call(*args, **kwargs)

    return first


def noop() -> None:
    """Do nothing."""


class StartWaiters:
    """`is_starting` returns whether the proxy with an id is starting."""

    def __init__(self, loop: Loop, is_starting: Callable[[str], bool]) -> None:
        self._loop = loop
        self._is_starting = is_starting
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def wait(self, proxy_id: str, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` once: now unless the proxy is starting, else when that is over, or after `seconds`."""
        if not self._is_starting(proxy_id):
            then()
            return
        call = call_once(then)
        waiting = self._waiting.setdefault(proxy_id, [])
        waiting.append(call)

        def late() -> None:
            if call in waiting:
                waiting.remove(call)
            if not waiting and self._waiting.get(proxy_id) is waiting:
                del self._waiting[proxy_id]
            call()

        self._loop.call_later(seconds, late)

    def update(self, proxy_id: str) -> None:
        """The state of the proxy may have changed."""
        if proxy_id in self._waiting and not self._is_starting(proxy_id):
            for call in self._waiting.pop(proxy_id):
                call()


class PhasedShutdown:
    """The actors of a phase are stopped when all of the phase before have ended and it isn't `busy` otherwise.

    `advance` is to be called whenever an actor has ended; `on_end` is called once, when all have.
    """

    def __init__(
        self,
        phases: Sequence[Sequence[ManagedActor]],
        stop: Callable[[ManagedActor], None],
        on_end: Callable[[], None],
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._phases = [list(phase) for phase in phases]
        self._stop = stop
        self._on_end: Callable[[], None] | None = on_end
        self._busy = busy
        self._advancing = False

    def advance(self) -> None:
        """Begin the phases that are due."""
        if self._advancing:
            return  # an actor ended as soon as it was stopped: the loop below sees it
        self._advancing = True
        while self._phases and self._is_over(self._phases[0]):
            del self._phases[0]
        self._advancing = False
        if not self._phases and self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end()

    def _is_over(self, phase: list[ManagedActor]) -> bool:
        for actor in phase:
            if actor.life.state not in (ActorState.STOPPED, ActorState.DRAINING):
                self._stop(actor)
        return not self._busy() and all(actor.life.state is ActorState.STOPPED and not actor.drains for actor in phase)
