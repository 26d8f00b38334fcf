"""Deadlines of many connections at next to no cost: a wheel of quarter-second slots, running only while it has entries.

A connection moves its `deadline` as often as it likes. It is checked only when the slot that it was scheduled for
comes up, and then expires or is scheduled again. Each connection is in one slot at most. None expires before its
deadline, nor later than a quarter of a second after it. The scheme is the hashed timing wheel of Varghese and Lauck.

Entries of one slot are checked some at a time, and those that are far away are spread over many slots: tens of
thousands of tunnels that were opened together, or expire together, make no turn of the loop long.

A closed connection is removed at once: at ten thousand new connections a second those of half a minute would be most
of the heap, and every full garbage collection would walk over them while all others wait.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

from actors.bus.loop import Loop

QUANTUM: Final = 0.25
HORIZON: Final = 25.0
STRIDE: Final = 5.0
"""Seconds over which the entries beyond the horizon are spread."""
FAR_SLOTS: Final = int(STRIDE / QUANTUM)
FAR: Final = HORIZON + 2 * STRIDE
"""Seconds from which on a deadline is far away."""
CHECKED_AT_ONCE: Final = 512
"""Entries of a slot, in one turn of the loop; fewer when they take long."""
UNCHECKED: Final = 8
"""Entries between two looks at the clock."""
NEVER: Final = float("inf")


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
        self._slots: dict[float, dict[Expirable, None]] = {}
        """Of connections in dictionaries: a set of as many takes twice the memory."""
        self._spread = 0

    def schedule(self, entry: Expirable) -> None:
        """Check `entry` no later than its deadline demands; cheap when its slot is early enough already."""
        deadline, now = entry.deadline, self._loop.now
        far = deadline > now + FAR
        when = _last_far_slot(now) if far else (int(deadline / QUANTUM) + 1) * QUANTUM
        if when >= entry.scheduled_for:
            return
        if entry.scheduled_for != NEVER:
            self.cancel(entry)
        if far:
            self._spread = (self._spread + 1) % FAR_SLOTS
            when -= self._spread * QUANTUM
        self._put(entry, when)

    def _put(self, entry: Expirable, when: float) -> None:
        entry.scheduled_for = when
        slot = self._slots.get(when)
        if slot is not None:
            slot[entry] = None
            return
        self._slots[when] = {entry: None}
        self._loop.call_later(max(0.0, when - self._loop.now), partial(self._check_slot, when))

    def cancel(self, entry: Expirable) -> None:
        """Remove an entry that has ended; harmless when it is in no slot."""
        slot = self._slots.get(entry.scheduled_for)
        if slot is not None:
            slot.pop(entry, None)
        entry.scheduled_for = NEVER

    def __len__(self) -> int:
        """The number of entries."""
        return sum(map(len, self._slots.values()))

    def _check_slot(self, when: float) -> None:
        slot = self._slots[when]  # it stays there meanwhile, for what ends in between
        checked = 0
        while slot and checked < CHECKED_AT_ONCE:
            self._check(slot.popitem()[0])
            checked += 1
            if checked % UNCHECKED == 0 and self._loop.turn_exceeded():
                break
        if slot:
            self._loop.call_soon(partial(self._check_slot, when))
        else:
            del self._slots[when]

    def _check(self, entry: Expirable) -> None:
        entry.scheduled_for = NEVER
        if entry.deadline <= self._loop.now:
            entry.expire()
        if entry.deadline != NEVER:
            self.schedule(entry)


def _last_far_slot(now: float) -> float:
    """The last of the slots that entries far away share: an entry in any of them stays there."""
    return (int((now + HORIZON) / STRIDE) + 2) * STRIDE - QUANTUM
