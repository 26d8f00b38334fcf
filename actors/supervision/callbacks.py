"""Waiting for several things without waiting: functions that count only once, and a gate with many keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class CountdownLatch:
    """Calls `then` once, when it is open and every key was turned."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = once(then)
        self._keys = 1

    def key(self) -> Callable[[], None]:
        """Something else to wait for: what it gives is to be called when that is there."""
        self._keys += 1
        return once(self.open)

    def open(self) -> None:
        """Everything has its key."""
        self._keys -= 1
        if self._keys == 0:
            self._then()


def once(call: Callable[[], None]) -> Callable[[], None]:
    """`call`, of which only the first call counts."""
    once = once_with(lambda _nothing: call())
    return lambda: once(None)


def once_with(call: Callable[[Any], None]) -> Callable[[Any], None]:
    """The same with an argument."""
    called = False

    def once(value: Any) -> None:
        nonlocal called
        if not called:
            called = True
            call(value)

    return once


def noop() -> None:
    """Nobody waits for this."""
