"""A query, compiled to be matched with blocks of records.

Words are sequences of anything but white space. A record is found when each of them is part of one of the fields in
`SEARCHED`, whatever the case of the letters A to Z.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from actors.bus.messages.records import QueryLogs
from actors.log_lines import levels_from
from actors.logs.columns import RecordColumns, conjunction, disjunction, ngrams_of
from actors.logs.dayfile import COUNTED
from actors.logs.record_schema import (
    ALPN,
    LISTEN_PORT,
    OUTCOME_FIELDS,
    REQUEST_ID,
    SEARCHED,
    TARGET,
    TLS_NAME,
    outcome_of,
)
from config.model.choices import LOG_LEVELS

MICRO = 1_000_000
EXACT = ("client_ip", "user", "method", "reason")
"""Fields of which a query names one value, and which are not counted by block."""
READ = ("credential", REQUEST_ID)
"""As these, and no n-grams are kept of them: their column is read."""

REPORTED = "reported"
"""As a query's `reason`: all that begin with it and a colon, those of rules in report mode."""
_REPORTED_PREFIX = b"(reported:"


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """Which records; times are whole microseconds, both inclusive. None means all."""

    start: int
    end: int
    facets: tuple[tuple[str, frozenset[str]], ...]
    """Fields and their possible values: those that the query restricts."""
    words: tuple[bytes, ...]
    parts: tuple[tuple[str, bytes], ...] = ()
    """Fields and a part of their value, with the letters A to Z in lower case."""
    offered: bytes | None = None
    """One of the protocols in `alpn`."""
    reported: bool = False
    """Only those with any reason of a rule in report mode (`reported:…`)."""
    outcome: str | None = None
    """One of `config.model.choices.OUTCOMES`."""

    @classmethod
    def of(cls, query: QueryLogs) -> CompiledQuery:
        """From the message."""
        facets: dict[str, frozenset[str]] = {}
        if query.proxy_ids is not None:
            facets["proxy_id"] = frozenset(query.proxy_ids)
        statuses = _statuses(query.status_code, query.status_class)
        if statuses is not None:
            facets["status_code"] = statuses
        levels = _levels(query.level, query.min_level)
        if levels is not None:
            facets["level"] = levels
        for name in (*EXACT, *READ):
            value = getattr(query, name)
            if value is not None and (name, value) != ("reason", REPORTED):
                facets[name] = frozenset({value})
        if query.listen_port is not None:
            facets[LISTEN_PORT] = frozenset({str(query.listen_port)})
        words = tuple(_folded(word) for word in (query.search or "").split())
        parts = ((TARGET, query.target), (TLS_NAME, query.tls_name))
        return cls(
            round(query.start * MICRO),
            round(query.end * MICRO),
            tuple(facets.items()),
            words,
            tuple((name, _folded(part)) for name, part in parts if part is not None),
            None if query.alpn is None else query.alpn.encode("utf-8", "surrogatepass"),
            query.reason == REPORTED,
            query.outcome,
        )

    @property
    def counted(self) -> dict[str, frozenset[str]]:
        """The part that is decided by the counts of a block."""
        return {name: wanted for name, wanted in self.facets if name in COUNTED}

    @property
    def counts_suffice(self) -> bool:
        """True if the counts of a block decide all but the time."""
        read = self.words or self.parts or self.offered is not None or self.reported or self.outcome is not None
        return not read and all(name in COUNTED for name, _wanted in self.facets)

    def ngrams(self) -> list[frozenset[int]]:
        """Of what a block has to contain: the words, and each exact value between its line feeds."""
        needed = [ngrams_of(word) for word in self.words]
        needed += [ngrams_of(part) for name, part in self.parts if name in SEARCHED]
        if self.reported:
            needed.append(ngrams_of(b"\n" + _REPORTED_PREFIX))
        for name, wanted in self.facets:
            if name in EXACT:
                needed += [ngrams_of(b"\n" + _as_searched(name, each) + b"\n") for each in wanted]
        return needed

    def mask(self, columns: RecordColumns) -> bytes | None:
        """Which rows match all but the times; None: no row."""
        masks = [b"\x01" * columns.count]
        for name, wanted in self.facets:
            mask = columns.texts(name).equal_to(wanted)
            if mask is None:
                return None
            masks.append(mask)
        for name, part in self.parts:
            mask = columns.texts(name).containing(part)
            if mask is None:
                return None
            masks.append(mask)
        if self.offered is not None:
            mask = columns.texts(ALPN).listing(self.offered)
            if mask is None:
                return None
            masks.append(mask)
        if self.reported:
            mask = columns.searched_texts("reason").containing(_REPORTED_PREFIX)
            if mask is None:
                return None
            masks.append(mask)
        if self.outcome is not None:
            masks.append(_with_outcome(columns, self.outcome))
        for word in self.words:
            mask = _containing(columns, word)
            if mask is None:
                return None
            masks.append(mask)
        return conjunction(masks)


def _folded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass").lower()


def _as_searched(name: str, value: str) -> bytes:
    """A value as it stands in the texts of which n-grams are kept (`RecordColumns.searched_texts`)."""
    return _folded(f"({value})" if name == "reason" and value else value)


def where(times: array[int], matches: Callable[[int], bool]) -> bytes:
    """The mask of rows whose time fulfils `matches`."""
    return bytes(map(matches, times))


def _containing(columns: RecordColumns, word: bytes) -> bytes | None:
    """The target comes last, which is the largest."""
    found = [mask for name in SEARCHED if (mask := columns.searched_texts(name).containing(word)) is not None]
    return disjunction(found) if found else None


def _with_outcome(columns: RecordColumns, outcome: str) -> bytes:
    parts = [columns.texts(name) for name in OUTCOME_FIELDS]
    rows = list(zip(*(part.codes for part in parts), strict=True))
    reasons, statuses, levels = (part.values for part in parts)
    matches = {each: outcome_of(reasons[each[0]], statuses[each[1]], levels[each[2]]) == outcome for each in set(rows)}
    return bytes(map(matches.__getitem__, rows))


def _statuses(exact: int | None, first_digit: int | None) -> frozenset[str] | None:
    """The values that fulfil both; None: all."""
    if first_digit is None:
        return None if exact is None else frozenset({str(exact)})
    every = range(100 * first_digit, 100 * first_digit + 100)
    return frozenset(str(each) for each in every if exact in (None, each))


def _levels(level: str | None, min_level: str | None) -> frozenset[str] | None:
    """The values that fulfil both; None: all."""
    exact = None if level is None else frozenset({level})
    least = None if min_level is None or min_level == LOG_LEVELS[0] else levels_from(min_level)
    if exact is None or least is None:
        return exact if least is None else least
    return exact & least
