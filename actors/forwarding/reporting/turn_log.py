"""Which turns of a loop were the longest, and what they did. For measurements alone: nothing of the product uses it.

A `TracedLoop` times each call that it makes. Its log keeps the longest turns with what was called in them and for how
long, collections of garbage among it.
"""

from __future__ import annotations

import gc
import heapq
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import zmq

from actors.bus.loop import Handler, Loop, Timer

KEPT: Final = 20
LONG: Final = 0.02
"""Seconds from which on a turn is counted as long."""
NAMED: Final = 5
"""Names that are kept of a turn."""

Call = tuple[Any, float]
"""What was called, or the name of it, and the seconds that it took."""


class LongTurn(NamedTuple):
    """`at` is Unix seconds, `what` milliseconds by the name of what was called.

    `cpu` is less than `milliseconds` where other processes had the processor meanwhile.
    """

    milliseconds: float
    cpu: float
    at: float
    what: dict[str, float]


class TurnLog:
    """The longest turns by the clock and by the processor's time, and how many there were."""

    def __init__(self) -> None:
        self.turns = 0
        self.long = 0
        self._longest: list[tuple[float, int, LongTurn]] = []
        self._busiest: list[tuple[float, int, LongTurn]] = []

    def add(self, seconds: float, cpu: float, at: float, calls: Sequence[Call]) -> None:
        """Count a turn that made these calls."""
        self.turns += 1
        self.long += seconds > LONG
        for kept, figure in ((self._longest, seconds), (self._busiest, cpu)):
            if len(kept) < KEPT or figure > kept[0][0]:
                turn = LongTurn(round(seconds * 1e3, 3), round(cpu * 1e3, 3), at, _sums(calls))
                add = heapq.heappush if len(kept) < KEPT else heapq.heapreplace
                add(kept, (figure, self.turns, turn))

    def longest(self) -> list[LongTurn]:
        """Of those so far, the longest first."""
        return [turn for _, _, turn in sorted(self._longest, reverse=True)]

    def busiest(self) -> list[LongTurn]:
        """Those that took the most of the processor's time, the most first."""
        return [turn for _, _, turn in sorted(self._busiest, reverse=True)]

    def write(self, file: Path) -> None:
        """As JSON, in place of what is there."""
        new = file.with_suffix(".new")
        counts = {"turns": self.turns, "long": self.long}
        new.write_text(json.dumps({**counts, "longest": self.longest(), "busiest": self.busiest()}))
        new.replace(file)


class TracedLoop(Loop):
    """A loop with a log of its turns."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self.log = TurnLog()
        self._calls: list[Call] = []
        self._began, self._began_cpu = clock(), time.thread_time()
        self._waits = False
        self._collecting = 0.0
        gc.callbacks.append(self._on_collection)

    def run(self) -> None:
        """See `Loop`. To be called once."""
        self.on_wake_deadline = partial(self._around_wait, self.on_wake_deadline)
        super().run()

    def watch(self, fd: int, mask: int, handler: Handler) -> None:
        """See `Loop`."""
        super().watch(fd, mask, self._timed_handler(handler))

    def set_handler(self, fd: int, handler: Handler) -> None:
        """See `Loop`."""
        super().set_handler(fd, self._timed_handler(handler))

    def call_later(self, delay: float, call: Callable[[], None]) -> Timer:
        """See `Loop`."""
        return super().call_later(delay, self._timed(call))

    def call_soon(self, call: Callable[[], None]) -> None:
        """See `Loop`."""
        super().call_soon(self._timed(call))

    def attach(self, socket: zmq.Socket[bytes], receive: Callable[[list[bytes]], object]) -> None:
        """See `Loop`."""

        def timed(frames: list[bytes]) -> None:
            began = self._clock()
            receive(frames)
            self._calls.append((receive, self._clock() - began))

        super().attach(socket, timed)

    def close(self) -> None:
        """See `Loop`."""
        gc.callbacks.remove(self._on_collection)
        super().close()

    def _timed_handler(self, handler: Handler) -> Handler:
        def timed(mask: int) -> None:
            began = self._clock()
            handler(mask)
            self._calls.append((handler, self._clock() - began))

        return timed

    def _timed(self, call: Callable[[], None]) -> Callable[[], None]:
        def timed() -> None:
            began = self._clock()
            call()
            self._calls.append((call, self._clock() - began))

        return timed

    def _around_wait(self, inner: Callable[[float], None], until: float) -> None:
        """Called before each wait, where a turn ends, and after it."""
        inner(until)
        self._waits = not self._waits
        now = self._clock()
        if self._waits:
            self.log.add(now - self._began, time.thread_time() - self._began_cpu, time.time(), self._calls)
            self._calls.clear()
        else:
            self._began, self._began_cpu = now, time.thread_time()

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = self._clock()
        else:
            name = f"collection of generation {info['generation']}"
            self._calls.append((name, self._clock() - self._collecting))


def _sums(calls: Sequence[Call]) -> dict[str, float]:
    """Milliseconds by name, the most first. What collections took is in that of the calls, too."""
    sums: dict[str, float] = {}
    for what, seconds in calls:
        name = _name(what)
        sums[name] = sums.get(name, 0.0) + seconds
    most = heapq.nlargest(NAMED, sums.items(), key=lambda item: item[1])
    return {name: round(seconds * 1e3, 3) for name, seconds in most}


def _name(what: Any) -> str:
    if isinstance(what, str):
        return what
    if isinstance(what, partial):
        return _name(what.func)
    return str(getattr(what, "__qualname__", type(what).__name__))
