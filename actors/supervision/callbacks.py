"""Callback helpers: a callback that counts only once, and a countdown latch."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

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
