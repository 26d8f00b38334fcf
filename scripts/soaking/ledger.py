"""The changes that succeeded, which must be there at the end.

Each thing has one writer. A change with a success response is certain. One without a response, or with an error, is in
doubt: it may have been done or not, perhaps later; so the thing is left alone from then on, and either is right.
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
        """True if it is left alone."""
        return len(self.values) > 1


@dataclass(slots=True)
class Ledger:
    """All things by collection and name."""

    things: dict[tuple[str, str], Thing] = field(default_factory=dict)
    succeeded: int = 0
    doubtful: int = 0

    def record(self, collection: str, name: str, value: Any, success: bool) -> None:
        """The change to `value` (`GONE` for a deletion) was requested."""
        thing = self.things.setdefault((collection, name), Thing([GONE]))
        if success:
            thing.values = [value]
            self.succeeded += 1
        else:
            thing.values.append(value)
            self.doubtful += 1

    def free(self, collection: str) -> dict[str, Any]:
        """The names and values of things that certainly exist and may be changed."""
        return {
            name: thing.values[0]
            for (where, name), thing in self.things.items()
            if where == collection and not thing.in_doubt and thing.values[0] is not GONE
        }

    def lost(self, collection: str, found: dict[str, Any]) -> list[str]:
        """Where `found` differs from the changes that succeeded; unknown things count, too."""
        wrong = [
            f"{collection} {name}: {found.get(name, GONE)!r}, expected {thing.values!r}"
            for (where, name), thing in self.things.items()
            if where == collection and found.get(name, GONE) not in thing.values
        ]
        unknown = [
            f"{collection} {name}: not created by the soak" for name in found if (collection, name) not in self.things
        ]
        return wrong + unknown
