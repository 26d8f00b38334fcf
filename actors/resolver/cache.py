"""What the name servers have said, for as long as it holds: by profile, name and kind of record; bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from actors.resolver.profiles import ProfileKey

ENTRIES_MAX = 20_000
"""Some 12 MB with one address each."""

FOUND, NO_DATA, NO_NAME, FAILED, TIMED_OUT = "found", "no_data", "no_name", "failed", "timed_out"
"""The name has addresses; it has none of this kind; there is no such name; no name server could say."""


class Outcome(NamedTuple):
    """The result of one question. `until` is when it ends, in seconds of the loop's clock."""

    status: str
    addresses: tuple[str, ...]
    until: float
    detail: str = ""


Key = tuple[ProfileKey, str, int]


class Cache:
    """Entries that were used longest ago make room for new ones."""

    def __init__(self, size: int = ENTRIES_MAX) -> None:
        self._size = size
        self._entries: OrderedDict[Key, Outcome] = OrderedDict()

    def get(self, key: Key, now: float) -> Outcome | None:
        """The outcome, while it holds."""
        found = self._entries.get(key)
        if found is None:
            return None
        if found.until <= now:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return found

    def put(self, key: Key, outcome: Outcome, now: float) -> None:
        """Keep an outcome if it holds beyond now."""
        if outcome.until <= now:
            return
        self._entries[key] = outcome
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def entries(self, now: float, name: str = "") -> Iterator[tuple[Key, Outcome]]:
        """All that hold, or those of one name; those used last come first."""
        every = reversed(self._entries.items())
        return ((key, each) for key, each in every if each.until > now and name in ("", key[1]))

    def forget(self, name: str = "", profile: ProfileKey | None = None) -> int:
        """Drop those of a name, of a profile, or all; how many."""
        gone = [key for key in self._entries if name in ("", key[1]) and (profile is None or key[0] == profile)]
        for key in gone:
            del self._entries[key]
        return len(gone)

    def __len__(self) -> int:
        return len(self._entries)
