"""Deadlines of many connections at next to no cost: a wheel of quarter-second slots, running only while it has entries.

A connection moves its `deadline` as often as it likes. It is checked only when the slot that it was scheduled for
comes up, and then expires or is scheduled again. Each connection is in one slot at most. None expires before its
deadline, nor later than a quarter of a second after it. The scheme is the hashed timing wheel of Varghese and Lauck.

A closed connection is removed at once: at ten thousand new connections a second those of half a minute would be most
of the heap, and every full garbage collection would walk over them while all others wait.
"""

from __future__ import annotations

from typing import Protocol

from actors.bus.loop import Loop

QUANTUM = 0.25
HORIZON = 30.0
STRIDE = 5.0
"""Seconds between the slots beyond the horizon: entries that far away share them."""
NEVER = float("inf")


class Expirable(Protocol):
    """Something with a deadline."""

    scheduled_for: float
    """The time of its slot, set by the wheel alone; `NEVER` while it is in none."""

    @property
    def deadline(self) -> float:
        """When it expires, by the loop's clock; `NEVER` once it has ended."""

    def expire(self) -> None:
        """The deadline has passed."""


class TimerWheel:
    """Slots by the time at which their entries are checked."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._slots: dict[float, set[Expirable]] = {}

    def schedule(self, entry: Expirable) -> None:
        """Check `entry` no later than its deadline demands; cheap when its slot is early enough already."""
        when = self._slot_of(entry.deadline)
        if when >= entry.scheduled_for:
            return
        if entry.scheduled_for != NEVER:
            self.cancel(entry)
        entry.scheduled_for = when
        slot = self._slots.get(when)
        if slot is not None:
            slot.add(entry)
            return
        self._slots[when] = {entry}
        self._loop.call_later(max(0.0, when - self._loop.now), lambda: self._check_slot(when))

    def cancel(self, entry: Expirable) -> None:
        """Remove an entry that has ended; harmless when it is in no slot."""
        slot = self._slots.get(entry.scheduled_for)
        if slot is not None:
            slot.discard(entry)
        entry.scheduled_for = NEVER

    def __len__(self) -> int:
        """The number of entries."""
        return sum(map(len, self._slots.values()))

    def _slot_of(self, deadline: float) -> float:
        horizon = self._loop.now + HORIZON
        if deadline > horizon + STRIDE:
            return (int(horizon / STRIDE) + 1) * STRIDE
        return (int(deadline / QUANTUM) + 1) * QUANTUM

    def _check_slot(self, when: float) -> None:
        for entry in self._slots.pop(when):
            if entry.scheduled_for == when:  # else an entry checked before it in this slot has ended it
                self._check(entry)

    def _check(self, entry: Expirable) -> None:
        entry.scheduled_for = NEVER
        if entry.deadline <= self._loop.now:
            entry.expire()
        if entry.deadline != NEVER:
            self.schedule(entry)
