"""The lists, pools and policies as the API has sent them, and which of them each proxy needs.

They stay packed: the supervisor only follows their names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from actors.bus.messages.fleet_objects import ALL_LISTS, FleetObject

GONE_REMEMBERED = 1_000


class DesiredObjects:
    """All objects, by id and by key."""

    def __init__(self) -> None:
        self._by_id: dict[str, FleetObject] = {}
        self._by_key: dict[str, FleetObject] = {}
        self._gone: deque[str] = deque(maxlen=GONE_REMEMBERED)
        self._sets: dict[tuple[str, ...], dict[str, bytes]] = {}

    def replace(self, objects: Iterable[FleetObject]) -> None:
        """These are all objects."""
        self._by_id = {each.id: each for each in objects}
        self._gone.clear()
        self._index()

    def apply(self, objects: Iterable[FleetObject], gone: Iterable[str]) -> None:
        """These have changed, those are gone. Messages may overtake each other: the greater revision wins."""
        for each in objects:
            known = self._by_id.get(each.id)
            if each.id not in self._gone and (known is None or known.revision <= each.revision):
                self._by_id[each.id] = each
        for identifier in gone:
            self._gone.append(identifier)
            self._by_id.pop(identifier, None)
        self._index()

    def packed(self, key: str) -> bytes | None:
        """The packed object with this key; None if there is none."""
        found = self._by_key.get(key)
        return None if found is None else found.packed

    def needed_by(self, names: tuple[str, ...]) -> dict[str, bytes]:
        """By key, the packed objects with these keys and all that they name. A key of no object is left out.

        `list:*` is every list. The set is shared, and must not be altered.
        """
        known = self._sets.get(names)
        if known is None:
            known = self._sets[names] = self._reached(names)
        return known

    def _index(self) -> None:
        self._by_key = {each.key: each for each in self._by_id.values()}
        self._sets.clear()

    def _reached(self, names: tuple[str, ...]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        waiting = [*names, *(self._all_lists() if ALL_LISTS in names else ())]
        while waiting:
            each = self._by_key.get(waiting.pop())
            if each is not None and each.key not in found:
                found[each.key] = each.packed
                waiting += each.names
        return {key: packed for key, packed in sorted(found.items()) if packed}

    def _all_lists(self) -> Iterator[str]:
        return (key for key in self._by_key if key.startswith(ALL_LISTS.removesuffix("*")))
