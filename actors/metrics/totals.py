"""Totals of proxies over all their processes, kept on disk so that neither a proxy's restart nor our own steps them.

Each process counts from its own start and says its cumulative counters again and again, so what is kept is the last
word of every process: a total is the sum over all processes that a proxy ever had. A word that was missed is made up
for by the next. The words of processes that are long gone are folded into one row, instance 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from actors.bus.messages.metrics import Counters, ProxyStats
from actors.metrics import labelled_counters
from actors.metrics.increments import COUNTED, FIELDS, Increments
from actors.metrics.labelled_counters import Tally
from actors.sqlite import add_columns, open_database

LIVE_FOR = 12.0
"""Seconds without a word after which a process's active connections count no more."""
FOLDED_AFTER = 3600.0
FOLD_PERIOD = 60.0
DELETED = ""
"""Stands for all proxies that were deleted, in place of an id."""

_SUMMED = (
    "requests",
    "errors",
    "denied",
    "auth_failures",
    "connections",
    "bytes_in",
    "bytes_out",
    "response_seconds",
    "cpu_seconds",
)
_FOLDED = 0

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS words (
    proxy_id TEXT, instance INTEGER, last_request REAL NOT NULL, {", ".join(f"{name} NOT NULL" for name in _SUMMED)},
    PRIMARY KEY (proxy_id, instance)
) WITHOUT ROWID;
{labelled_counters.SCHEMA}"""
_WORD = ("proxy_id", "instance", *_SUMMED, "last_request")
_COLUMNS, _MARKS = ", ".join(_WORD), ", ".join("?" * len(_WORD))
_READ = f"SELECT {_COLUMNS} FROM words"  # noqa: S608 - names of ours
RESIDENT_FOR = 130.0
"""Seconds that what a process told of its memory is taken for true; an idle one tells every minute."""


@dataclass(slots=True)
class Word:
    """The last cumulative counters of one process."""

    requests: int = 0
    errors: int = 0
    denied: int = 0
    auth_failures: int = 0
    connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    response_seconds: float = 0.0
    cpu_seconds: float = 0.0
    last_request: float = 0.0
    tally: Tally = field(default_factory=dict)

    @classmethod
    def of(cls, counters: Counters) -> Word:
        """What `counters` says."""
        plain = {name: getattr(counters, name) for name in (*_SUMMED, "last_request")}
        return cls(**plain, tally=labelled_counters.tally_of(counters))

    def columns(self) -> tuple[float, ...]:
        """All but the tally, as they stand in a row."""
        return (*(getattr(self, name) for name in _SUMMED), self.last_request)

    def add(self, other: Word) -> None:
        """Sum up."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.last_request = max(self.last_request, other.last_request)
        labelled_counters.add(self.tally, other.tally)


@dataclass(slots=True)
class _Process:
    word: Word
    active: int = 0
    resident: int = 0
    heard: float = 0.0
    restored: bool = False
    """Is its word from the disk? Then nobody listened for a while."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What a process has counted since its last word. `first`: there was none; `restored`: it was read from disk."""

    amounts: Increments
    first: bool
    restored: bool


class Beside(Protocol):
    """Who saves something together with the totals."""

    def pending(self) -> bool:
        """Is there anything that should be saved now, even if no total has changed?"""
        ...

    def store(self) -> None:
        """Write it: a transaction is under way."""
        ...

    def stored(self) -> None:
        """It was committed."""
        ...


class Totals:
    """All counters of all proxies. `clock` is monotonic.

    `beside` keeps what it makes of the counters in `database`, too, and is saved in the same transactions; so it never
    says anything else than the totals.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.database = self._database = open_database(folder / "totals.sqlite", _SCHEMA)
        self._proxies: dict[str, dict[int, _Process]] = {}
        self._changed: dict[str, float] = {}
        """When the totals of each proxy changed last, in this order."""
        self._open: set[str] = set()
        """The proxies with open connections: those cease to count without a word when their process is silent."""
        self._unsaved: dict[tuple[str, int], Tally] = {}
        self._folded = clock()
        add_columns(self._database, "words", _SUMMED)
        self.beside: Beside | None = None
        for proxy_id, instance, *counted in self._database.execute(_READ):
            self._proxies.setdefault(proxy_id, {})[instance] = _Process(Word(*counted), heard=clock(), restored=True)
        for proxy_id, instance, tally in labelled_counters.load(self._database):
            labelled_counters.add(self._proxies[proxy_id][instance].word.tally, tally)
        self._changed = dict.fromkeys(self._proxies, clock())

    def take(self, counters: Counters) -> Growth:
        """A process said its counters: what has been added to them."""
        processes = self._proxies.setdefault(counters.proxy_id, {})
        first = counters.instance not in processes
        process = processes.setdefault(counters.instance, _Process(Word()))
        word, before = Word.of(counters), process.word
        if word != before or counters.active_connections != process.active:
            self._changed.pop(counters.proxy_id, None)
            self._changed[counters.proxy_id] = self._clock()
        if word != before:
            unsaved = self._unsaved.setdefault((counters.proxy_id, counters.instance), {})
            unsaved.update(labelled_counters.changes(before.tally, word.tally))
        growth = Growth(_grown(before, word), first, process.restored)
        process.word, process.active, process.heard = word, counters.active_connections, self._clock()
        process.resident = counters.resident
        process.restored = False
        if any(each.active for each in processes.values()):
            self._open.add(counters.proxy_id)
        else:
            self._open.discard(counters.proxy_id)
        return growth

    def proxy_ids(self) -> tuple[str, ...]:
        """All that were ever heard of and not deleted."""
        return tuple(each for each in self._proxies if each != DELETED)

    def active(self) -> dict[str, int]:
        """The connections that are open, by proxy."""
        now = self._clock()
        return {
            proxy_id: sum(each.active for each in processes.values() if now - each.heard < LIVE_FOR)
            for proxy_id, processes in self._proxies.items()
            if proxy_id != DELETED
        }

    @property
    def now(self) -> float:
        """The moment, to ask later what has changed since."""
        return self._clock()

    def resident(self, proxy_ids: Iterable[str]) -> int:
        """Bytes of memory of the processes of these proxies, as they told them."""
        now = self._clock()
        processes = (process for each in proxy_ids for process in self._proxies.get(each, {}).values())
        return sum(each.resident for each in processes if now - each.heard < RESIDENT_FOR)

    def stats(self, proxy_ids: Iterable[str] = (), detailed: bool = False, since: float = 0.0) -> dict[str, ProxyStats]:
        """The totals of these proxies, of all when none is named; unknown ones are left out.

        Only `detailed` ones say how many requests had which status and latency. With `since` those may be left out
        that are what they were then.
        """
        wanted = tuple(proxy_ids) or self._changed_since(since)
        return {
            proxy_id: self._stats(self._proxies[proxy_id].values(), detailed)
            for proxy_id in wanted
            if proxy_id in self._proxies
        }

    def _changed_since(self, since: float) -> set[str]:
        """And those that may have changed without a word."""
        newest_first = takewhile(lambda each: each[1] >= since, reversed(self._changed.items()))
        return {proxy_id for proxy_id, _ in newest_first if proxy_id != DELETED} | self._open

    def total(self) -> ProxyStats:
        """The totals of all proxies together."""
        return self._stats(each for processes in self._proxies.values() for each in processes.values())

    def forget(self, proxy_id: str) -> None:
        """The proxy was deleted. What it has counted stays in the total, which never falls."""
        gone = self._proxies.pop(proxy_id, {})
        self._changed.pop(proxy_id, None)
        self._open.discard(proxy_id)
        kept = self._proxies.setdefault(DELETED, {}).setdefault(_FOLDED, _Process(Word()))
        for process in gone.values():
            kept.word.add(process.word)
        self._unsaved[DELETED, _FOLDED] = kept.word.tally
        for table in ("words", "tallies"):
            self._database.execute(f"DELETE FROM {table} WHERE proxy_id = ?", (proxy_id,))  # noqa: S608
        self.save()

    def save(self) -> None:
        """Put on disk what has changed. Raises `sqlite3.Error`, and then everything is still to be saved."""
        if self._clock() - self._folded >= FOLD_PERIOD:
            self._fold()
        if not (self._unsaved or (self.beside is not None and self.beside.pending())):
            return
        with self._database:  # commits, or rolls back when it raises
            self._database.execute("BEGIN")
            for (proxy_id, instance), tally in self._unsaved.items():
                process = self._proxies.get(proxy_id, {}).get(instance)
                if process is not None:  # else folded or forgotten meanwhile
                    self._store(proxy_id, instance, process.word, tally)
            if self.beside is not None:
                self.beside.store()
        self._unsaved.clear()
        if self.beside is not None:
            self.beside.stored()

    def _store(self, proxy_id: str, instance: int, word: Word, tally: Tally) -> None:
        row = (proxy_id, instance, *word.columns())
        self._database.execute(f"INSERT OR REPLACE INTO words ({_COLUMNS}) VALUES ({_MARKS})", row)  # noqa: S608 - names of ours
        labelled_counters.store(self._database, proxy_id, instance, tally)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _stats(self, processes: Iterable[_Process], detailed: bool = False) -> ProxyStats:
        total, active, resident, now = Word(), 0, 0, self._clock()
        for process in processes:
            total.add(process.word)
            active += process.active if now - process.heard < LIVE_FOR else 0
            resident += process.resident if now - process.heard < RESIDENT_FOR else 0
        return ProxyStats(
            total.requests,
            total.errors,
            total.denied,
            total.auth_failures,
            active,
            total.connections,
            total.bytes_in,
            total.bytes_out,
            total.response_seconds,
            total.last_request,
            labelled_counters.of_kind(total.tally, labelled_counters.REFUSED),
            labelled_counters.of_kind(total.tally, labelled_counters.REPORTED),
            sum(labelled_counters.of_kind(total.tally, labelled_counters.DROPPED).values()),
            labelled_counters.of_kind(total.tally, labelled_counters.STATUS) if detailed else {},
            tuple(sorted(labelled_counters.histogram(total.tally).items())) if detailed else (),
            total.cpu_seconds,
            resident,
            sum(labelled_counters.of_kind(total.tally, labelled_counters.INTERNAL).values()),
        )

    def _fold(self) -> None:
        """Processes that are long gone, and aren't the newest of their proxy, become one row."""
        now = self._folded = self._clock()
        for proxy_id, processes in self._proxies.items():
            newest = max(processes)
            gone = [
                number
                for number, process in processes.items()
                if number not in (_FOLDED, newest) and now - process.heard > FOLDED_AFTER
            ]
            if gone:
                self._fold_into_one(proxy_id, processes, gone)

    def _fold_into_one(self, proxy_id: str, processes: dict[int, _Process], gone: list[int]) -> None:
        folded = Word()
        for number in (_FOLDED, *gone):
            if number in processes:
                folded.add(processes[number].word)
        with self._database:
            self._database.execute("BEGIN")
            keys = [(proxy_id, number) for number in gone]
            for table in ("words", "tallies"):
                self._database.executemany(f"DELETE FROM {table} WHERE proxy_id = ? AND instance = ?", keys)  # noqa: S608
            self._store(proxy_id, _FOLDED, folded, folded.tally)
        for number in gone:
            del processes[number]
        processes[_FOLDED] = _Process(folded)


def _grown(before: Word, after: Word) -> Increments:
    """Never less than nothing: the counters of a process only grow, whatever the disk says."""
    old, new = labelled_counters.histogram(before.tally), labelled_counters.histogram(after.tally)
    latency = {number: count - old.get(number, 0) for number, count in new.items() if count > old.get(number, 0)}
    counted = [max(0, getattr(after, name) - getattr(before, name)) for name in COUNTED if name != "answered"]
    return Increments([*counted, sum(latency.values()), *[0] * (len(FIELDS) - len(COUNTED))], latency)
