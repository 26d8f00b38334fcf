"""What a search asks for, made ready to be held against blocks of records.

Words are sequences of anything but white space. A record is found when each of them is part of one of the fields in
`SEARCHED`, whatever the case of the letters A to Z.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from actors.bus.messages import QueryLogs
from actors.log_lines import LEVELS, levels_from
from actors.logs.columns import Columns, conjunction, disjunction
from actors.logs.fields import SEARCHED
from actors.logs.grams import grams_of

MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records; times are whole microseconds, both inclusive. None means all."""

    start: int
    end: int
    facets: tuple[tuple[str, frozenset[str]], ...]
    """Fields and what they may be: of level, proxy, status and client address those that are asked for."""
    words: tuple[bytes, ...]

    @classmethod
    def of(cls, query: QueryLogs) -> Selection:
        """What `query` asks for."""
        facets: dict[str, frozenset[str]] = {}
        if query.proxy_ids is not None:
            facets["proxy_id"] = frozenset(query.proxy_ids)
        if query.status_code is not None:
            facets["status_code"] = frozenset({str(query.status_code)})
        levels = _levels(query.level, query.min_level)
        if levels is not None:
            facets["level"] = levels
        if query.client_ip is not None:
            facets["client_ip"] = frozenset({query.client_ip})
        words = tuple(word.encode("utf-8", "surrogatepass").lower() for word in (query.search or "").split())
        return cls(round(query.start * MICRO), round(query.end * MICRO), tuple(facets.items()), words)

    @property
    def tallied(self) -> dict[str, frozenset[str]]:
        """The part that the tallies of a block answer."""
        return {name: wanted for name, wanted in self.facets if name != "client_ip"}

    @property
    def only_tallied(self) -> bool:
        """Do the tallies answer all of it, but the time?"""
        return not self.words and all(name != "client_ip" for name, _wanted in self.facets)

    def grams(self) -> list[frozenset[int]]:
        """Of what a block has to hold: the words, and the client's address between its line feeds."""
        needed = [grams_of(word) for word in self.words]
        for name, wanted in self.facets:
            if name == "client_ip":
                needed += [grams_of(b"\n" + each.encode().lower() + b"\n") for each in wanted]
        return needed

    def mask(self, columns: Columns) -> bytes | None:
        """Which rows fulfil all but the times; None: no row."""
        masks = [b"\x01" * columns.count]
        for name, wanted in self.facets:
            mask = columns.texts(name).among(wanted)
            if mask is None:
                return None
            masks.append(mask)
        for word in self.words:
            mask = _holding(columns, word)
            if mask is None:
                return None
            masks.append(mask)
        return conjunction(masks)


def where(times: array[int], holds: Callable[[int], bool]) -> bytes:
    """The mask of rows whose time fulfils `holds`."""
    return bytes(map(holds, times))


def _holding(columns: Columns, word: bytes) -> bytes | None:
    """The target comes last, which is the largest."""
    found = [mask for name in SEARCHED if (mask := columns.searched_texts(name).holding(word)) is not None]
    return disjunction(found) if found else None


def _levels(level: str | None, min_level: str | None) -> frozenset[str] | None:
    """What both allow; None: all."""
    exact = None if level is None else frozenset({level})
    least = None if min_level is None or min_level == LEVELS[0] else levels_from(min_level)
    if exact is None or least is None:
        return exact if least is None else least
    return exact & least
