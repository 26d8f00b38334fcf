"""Publishes an actor's counters: every second while they change, rarely while they don't.

A timer that checks every second whether something has changed would be most of the work of two hundred idle actors. So
it runs only while it finds changes, and is started again by the next activity (`Loop.on_next_activity`).

Published counters are not acknowledged, so they are repeated: every `REPEATED_AFTER` seconds while clients are
connected, by which a collector knows that they still are; else after twice the previous time.

Among them is how busy the loop is, and its longest turn: while one lasts, all other clients wait. The last ones, when
the last client has gone, are acknowledged (`LastReports`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from actors.bus.loop import Loop, Timer
from actors.bus.mailbox import Mailbox
from actors.bus.messages.common import METRICS
from actors.bus.messages.metrics import Counters
from actors.bus.records import RecordSender

PERIOD = 1.0
REPEATED_AFTER = 5.0
REPEATED_MAX = 60.0
FULL_EACH = 60


class CounterPublisher:
    """Calls `publish` with what `count` returns, which is None as long as there is nothing to count.

    There may be ten thousand rules that requests have matched. So most messages have only the counts of those that
    have, since the one before; `count(True)` returns all of them, for every `FULL_EACH`th message and repetitions.
    """

    def __init__(
        self, loop: Loop, count: Callable[[bool], Counters | None], publish: Callable[[Counters], None]
    ) -> None:
        self._loop = loop
        self._count = count
        self._publish = publish
        self._last: Counters | None = None
        self._published = 0
        self._published_at = 0.0
        self._pause = REPEATED_AFTER
        self._timer: Timer | None = None
        loop.on_next_activity(self._on_activity)

    def publish(self, full: bool = True) -> None:
        """Publish the counters now, if there are any."""
        self._last = self._count(full)
        if self._last is not None:
            self._published += 1
            self._published_at = self._loop.now
            self._publish(self._last)

    def _on_activity(self) -> None:
        self._check_after(PERIOD)

    def _check(self) -> None:
        counters = self._count(False)
        if counters is not None and counters.changed_since(self._last):
            self._pause = REPEATED_AFTER
            self.publish(self._published % FULL_EACH == 0)
            self._check_after(PERIOD)
            return
        self._loop.on_next_activity(self._on_activity)
        if counters is not None:
            self._repeat(counters)

    def _repeat(self, counters: Counters) -> None:
        if self._loop.now - self._published_at >= self._pause:
            self.publish()
            if not counters.active_connections:
                self._pause = min(2 * self._pause, REPEATED_MAX)
        self._check_after(self._published_at + self._pause - self._loop.now)

    def _check_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._check)


WINDOW: Final = 30.0
"""Seconds. What is reported is of one to two of them, so that a scrape every half minute misses no long turn."""


class Load(NamedTuple):
    """`busy` is the share of time that the process had a processor, 0 to 1.

    `turn_max_ms` is the longest turn in milliseconds.
    """

    busy: float = 0.0
    turn_max_ms: float = 0.0


class LoopLoad:
    """Reads the load since the begin of the window before the present one."""

    def __init__(self, loop: Loop, cpu: Callable[[], float] = time.process_time) -> None:
        self._loop = loop
        self._cpu = cpu
        self._begun = self._before = (loop.now, cpu())
        """The time and the processor time at which the present window and the one before it began."""
        self._longest_before = 0.0

    def read(self) -> Load:
        """The load now. To be called every few seconds while there is traffic."""
        loop = self._loop
        longest = max(loop.longest_turn, self._longest_before)
        since, used = self._before
        passed, cpu = loop.now - since, self._cpu()
        load = Load(min(1.0, (cpu - used) / passed) if passed > 0 else 0.0, longest * 1000)
        if loop.now - self._begun[0] >= WINDOW:
            self._before, self._longest_before = self._begun, loop.longest_turn
            self._begun, loop.longest_turn = (loop.now, cpu), 0.0
        return Load(round(load.busy, 4), round(load.turn_max_ms, 3))

    def __repr__(self) -> str:
        return f"<LoopLoad since {self._before[0]:.1f}>"


LAST_COUNTERS = 5.0
"""Seconds that the last counters may take to be acknowledged, of a collector that starts, too."""
LAST_RECORDS = 1.0
"""Seconds that the last records may take to be acknowledged."""
CHECKED_EACH = 0.02


class LastReports:
    """Calls `finish` when what was sent has arrived, or has had its time."""

    def __init__(self, loop: Loop, mailbox: Mailbox, records: RecordSender, finish: Callable[[], None]) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._records = records
        self._finish = finish
        self._records_until = 0.0
        self._counters_acknowledged = True

    def send(self, counters: Counters | None) -> None:
        """Send these counters, and the records that wait."""
        self._records.flush()
        self._records_until = self._loop.now + LAST_RECORDS
        if counters is not None:
            self._counters_acknowledged = False
            self._mailbox.ask(METRICS, counters, self._on_counters, LAST_COUNTERS)
        self._finish_when_acknowledged()

    def _on_counters(self, _reply: object) -> None:
        self._counters_acknowledged = True  # or there is no collector

    def _finish_when_acknowledged(self) -> None:
        settled = self._records.settled or self._loop.now > self._records_until
        if settled and self._counters_acknowledged:
            self._finish()
        else:
            self._loop.call_later(CHECKED_EACH, self._finish_when_acknowledged)
