"""Deadlines of many connections at next to no cost: a wheel of quarter seconds that turns only while it is needed.

A connection moves its `deadline` as often as it likes; only when the quarter comes for which it was last noted is it
checked, and then it is noted again for later or expired. Each is noted in one quarter at most. None expires before its
deadline, nor later than a quarter of a second after it.

What has ended is forgotten at once: at ten thousand new connections a second those of half a minute would be most of
the heap, and every full garbage collection would walk over them while all others wait.
"""

from __future__ import annotations

from typing import Protocol

from actors.bus.loop import Loop

QUANTUM = 0.25
HORIZON = 30.0
STRIDE = 5.0
"""Whoever expires beyond the horizon is looked at with many others, once in so many seconds."""
NEVER = float("inf")


class Expirable(Protocol):
    """Something with a deadline."""

    noted: float
    """When it will be looked at; `NEVER` at first. The wheel's own."""

    @property
    def deadline(self) -> float:
        """When it expires, by the loop's clock; `NEVER` when it is over already."""

    def expire(self) -> None:
        """The deadline has passed."""


class TimerWheel:
    """The wheel."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._quarters: dict[float, set[Expirable]] = {}

    def note(self, mortal: Expirable) -> None:
        """See that it is looked at in time; cheap when it already is."""
        when = self._when(mortal.deadline)
        if when >= mortal.noted:
            return
        if mortal.noted != NEVER:
            self.forget(mortal)
        mortal.noted = when
        quarter = self._quarters.get(when)
        if quarter is not None:
            quarter.add(mortal)
            return
        self._quarters[when] = {mortal}
        self._loop.call_later(max(0.0, when - self._loop.now), lambda: self._look(when))

    def forget(self, mortal: Expirable) -> None:
        """Hold it no longer, since it has ended; harmless when it is not noted."""
        quarter = self._quarters.get(mortal.noted)
        if quarter is not None:
            quarter.discard(mortal)
        mortal.noted = NEVER

    def __len__(self) -> int:
        """How many are noted."""
        return sum(map(len, self._quarters.values()))

    def _when(self, deadline: float) -> float:
        horizon = self._loop.now + HORIZON
        if deadline > horizon + STRIDE:
            return (int(horizon / STRIDE) + 1) * STRIDE
        return (int(deadline / QUANTUM) + 1) * QUANTUM

    def _look(self, when: float) -> None:
        for mortal in self._quarters.pop(when):
            if mortal.noted == when:  # else one that was checked before it in this quarter has ended it
                self._look_at(mortal)

    def _look_at(self, mortal: Expirable) -> None:
        mortal.noted = NEVER
        if mortal.deadline <= self._loop.now:
            mortal.expire()
        if mortal.deadline != NEVER:
            self.note(mortal)
