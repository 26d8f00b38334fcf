"""What was answered, and so has to be so at the end.

Each thing has one writer. A change that was answered with success is settled. One that got no answer, or an error, is
in doubt: it may have been done or not, perhaps later; so the thing is left alone from then on, and either is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

GONE = None
"""The value of a thing that doesn't exist."""


@dataclass(slots=True)
class Thing:
    """`values` are those that it may have: one, or two while a change is in doubt."""

    values: list[Any]

    @property
    def in_doubt(self) -> bool:
        """Is it left alone?"""
        return len(self.values) > 1


@dataclass(slots=True)
class Ledger:
    """All things by collection and name."""

    things: dict[tuple[str, str], Thing] = field(default_factory=dict)
    answered: int = 0
    doubtful: int = 0

    def note(self, collection: str, name: str, value: Any, answered: bool) -> None:
        """`value` was asked for, `GONE` for a deletion."""
        thing = self.things.setdefault((collection, name), Thing([GONE]))
        if answered:
            thing.values = [value]
            self.answered += 1
        else:
            thing.values.append(value)
            self.doubtful += 1

    def free(self, collection: str) -> dict[str, Any]:
        """The names and values of what exists for sure and may be changed."""
        return {
            name: thing.values[0]
            for (where, name), thing in self.things.items()
            if where == collection and not thing.in_doubt and thing.values[0] is not GONE
        }

    def lost(self, collection: str, found: dict[str, Any]) -> list[str]:
        """Where `found` isn't what was answered; things that nobody noted count, too."""
        wrong = [
            f"{collection} {name}: {found.get(name, GONE)!r}, answered was {thing.values!r}"
            for (where, name), thing in self.things.items()
            if where == collection and found.get(name, GONE) not in thing.values
        ]
        strange = [f"{collection} {name}: nobody made it" for name in found if (collection, name) not in self.things]
        return wrong + strange
