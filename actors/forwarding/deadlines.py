"""Deadlines of many connections at the cost of none: a wheel of seconds that is looked at once a second.

A connection moves its `deadline` as often as it likes; only when the second comes in which it was last noted does
somebody look, and then it is noted again for later or expired. Notes that have been overtaken by an earlier one are
recognised by `noted` and passed over.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

NEVER = 1 << 62


class Mortal(Protocol):
    """Something with a deadline."""

    noted: int
    """The second in which it will be looked at; `NEVER` at first. The wheel's own."""

    @property
    def deadline(self) -> float:
        """When it expires, by the loop's clock; `float("inf")` when it is over already."""

    def expire(self) -> None:
        """The deadline has passed."""


class Deadlines:
    """The wheel."""

    def __init__(self) -> None:
        self._seconds: defaultdict[int, list[Mortal]] = defaultdict(list)

    def note(self, mortal: Mortal) -> None:
        """See that it is looked at in time; cheap when it already is."""
        second = int(mortal.deadline) + 1
        if second < mortal.noted:
            mortal.noted = second
            self._seconds[second].append(mortal)

    def look(self, now: float) -> None:
        """Expire what is due."""
        for second in [second for second in self._seconds if second <= now]:
            for mortal in self._seconds.pop(second):
                if mortal.noted == second:
                    self._look_at(mortal, now)

    def _look_at(self, mortal: Mortal, now: float) -> None:
        mortal.noted = NEVER
        if mortal.deadline <= now:
            mortal.expire()
        if mortal.deadline != float("inf"):
            self.note(mortal)
