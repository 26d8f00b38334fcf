"""What all processes count of accounts (`actors.state.usage`), for the one that books it: the metrics collector."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from actors.mapped_file import Words
from actors.state.live_state import PROCESSES, Digests
from actors.state.processes import LivingProcesses, open_processes
from actors.state.table import COLLECTOR, FOREVER, KEY, NO_LINE, OWNER, RELEASED, UNTIL, Table, make_table
from actors.state.usage import (
    ACCOUNT,
    ADDRESS,
    AHEAD,
    BOOKED,
    BYTES_IN,
    CHANGES,
    CONNECTIONS,
    INSTANCE,
    LINE,
    NAME,
    NO_MORE,
    PERIOD,
    PROXY,
    QUOTA,
    SEEN,
    SERIAL,
    STATE,
    TABLE,
    TOTAL,
    TOTAL_WORDS,
    USAGE,
    seconds_ahead,
)
from config.model.choices import PERIODS

log = logging.getLogger(__name__)

_BLOCK: Final = 8 * 64
"""Bytes of CHANGES that are compared at once."""
_SECOND: Final = 1_000_000
_LARGEST: Final = 2**62
"""No number of a line is larger."""


class CountedLine(NamedTuple):
    """What a process has counted of an account. `figures` are BYTES_IN … REFUSALS, `last_seen` Unix seconds.

    `final`: nothing is counted in it any more.
    """

    line: int
    account_id: str
    username: str
    proxy_id: str
    instance: int
    serial: int
    quota: int
    period: str
    figures: tuple[int, ...]
    connections: int
    last_seen: float
    client_ip: str
    final: bool


class BookedUsage:
    """The table, for the one that books: the metrics collector."""

    def __init__(self, table: Table, processes: LivingProcesses) -> None:
        self._table = table
        self._processes = processes
        self._digests = Digests(USAGE)
        self._changes: dict[int, bytes] = {}
        """CHANGES of all lines as they were read last, by the first line of a stripe."""
        self._owners: dict[int, tuple[bytes, frozenset[int]]] = {}
        """The same of OWNER, and the different ones."""

    def close(self) -> None:
        """Close the file."""
        self._table.close()

    def changed(self) -> list[int]:
        """Lines that have something new since this was called last, all at first, and those that are final."""
        found = dict[int, None]()
        for lines in self._table.used():
            if lines:
                new, before = self._column(lines, CHANGES), self._changes.get(lines.start, b"")
                self._changes[lines.start] = new
                found.update((lines[each], None) for each in _differing(before, new))
                found.update((each, None) for each in self._final(lines))
        return list(found)

    @property
    def ahead(self) -> float:
        """Seconds by which the clock of periods is ahead of this machine's, as the collector has said last."""
        return seconds_ahead(self._table.words)

    def set_ahead(self, seconds: float) -> None:
        """From now on it is ahead by so much."""
        self._table.words[AHEAD] = int(seconds * _SECOND) % 2**64

    def all_again(self) -> None:
        """What `changed` has returned was not booked."""
        self._changes.clear()

    def _column(self, lines: range, word: int) -> bytes:
        return self._table.words[lines.start + word : lines.stop : lines.step].tobytes()

    def _final(self, lines: range) -> list[int]:
        owners, (before, different) = self._column(lines, OWNER), self._owners.get(lines.start, (b"", frozenset()))
        if owners != before:
            different = frozenset(memoryview(owners).cast("Q").tolist())
            self._owners[lines.start] = owners, different
        gone = {each for each in different if self._has_ended(each)}
        if not gone:
            return []
        found = (lines[at] for at, owner in enumerate(memoryview(owners).cast("Q").tolist()) if owner in gone)
        return [line for line in found if self._table.words[line + UNTIL] == FOREVER]

    def names(self) -> set[tuple[int, int]]:
        """Instance and serial of every line of a process that isn't free."""
        found = set[tuple[int, int]]()
        for lines in self._table.used():
            if lines:
                columns = [memoryview(self._column(lines, each)).cast("Q") for each in (INSTANCE, SERIAL, OWNER)]
                rows = zip(*columns, strict=True)
                found.update((instance, serial) for instance, serial, owner in rows if owner not in (0, COLLECTOR))
        return found

    def _has_ended(self, owner: int) -> bool:
        return owner == RELEASED or (owner > COLLECTOR and not self._processes.lives(owner))

    def read(self, line: int) -> CountedLine | None:
        """What a line says; None: nothing, and one whose process has ended before it did is free."""
        words = self._table.words
        owner = words[line + OWNER]
        ended = self._has_ended(owner)  # first: what is read then is the last
        numbers = words[line : line + LINE].tolist()
        final = ended and numbers[OWNER] == owner  # else it is another's by now
        if numbers[OWNER] in (0, COLLECTOR) or not numbers[SERIAL]:
            if final and numbers[UNTIL] == FOREVER:  # else it is free already
                self.free((line,))
            return None
        account_id = _read(words, line + ACCOUNT, line + PROXY)
        period = numbers[PERIOD]
        written = numbers[INSTANCE : PERIOD + 1]
        if self._digests.of(account_id) != numbers[KEY] or period >= len(PERIODS) or max(written) > _LARGEST:
            if final:
                log.error("what a process that has ended counted for %r is not booked: it is damaged", account_id)
                self.free((line,))
            return None  # another program has written there
        return CountedLine(
            line,
            account_id,
            _read(words, line + NAME, line + LINE),
            _read(words, line + PROXY, line + ADDRESS),
            numbers[INSTANCE],
            numbers[SERIAL],
            numbers[QUOTA],
            PERIODS[period],
            tuple(numbers[BYTES_IN:CONNECTIONS]),
            0 if final else numbers[CONNECTIONS],
            numbers[SEEN] / _SECOND,
            _read(words, line + ADDRESS, line + NAME),
            final,
        )

    def lines_of(self, account_id: str) -> list[CountedLine]:
        """What all processes have counted of an account."""
        found = (self.read(line) for line in self._table.all_lines(self._digests.of(account_id)))
        return [each for each in found if each is not None]

    def open_connections(self, beginning: str) -> dict[str, int]:
        """By account, of those whose ids begin so and that have any."""
        found = Counter[str]()
        for lines in self._table.used():
            if not lines:
                continue
            columns = (memoryview(self._column(lines, each)).cast("Q") for each in (CONNECTIONS, OWNER))
            for line, number, owner in zip(lines, *columns, strict=True):
                counted = self.read(line) if number and owner not in (0, COLLECTOR) else None
                if counted is not None and counted.connections and counted.account_id.startswith(beginning):
                    found[counted.account_id] += counted.connections
        return dict(found)

    def has_total(self, account_id: str) -> bool:
        """Whether processes read what the account has used altogether."""
        return self._total(self._digests.of(account_id)) != NO_LINE

    def write_total(
        self,
        account_id: str,
        period: int,
        bytes_in: int,
        bytes_out: int,
        booked: Mapping[tuple[int, int], tuple[int, int]],
        may_use: int = FOREVER,
        no_more: bool = False,
    ) -> bool:
        """What the account has used in its period, by the word for that, with what is in it of each line.

        `booked` is by instance and serial; `may_use` and `no_more` as in `SharedUsage`. Returns false if it can't be
        written now.
        """
        key, words = self._digests.of(account_id), self._table.words
        total = self._total(key) or self._claim(key)
        if not total:
            return False
        state = words[total + STATE] + 1
        place = state & 1
        for line in self._table.all_lines(key):
            if words[line + OWNER] not in (0, COLLECTOR):
                of_line = booked.get((words[line + INSTANCE], words[line + SERIAL]), (0, 0))
                words[line + BOOKED + 2 * place] = of_line[0]
                words[line + BOOKED + 2 * place + 1] = of_line[1]
        at = total + TOTAL + TOTAL_WORDS * place
        limit = (may_use + NO_MORE) & ~NO_MORE | (NO_MORE if no_more and may_use != FOREVER else 0)
        for word, number in enumerate((period, bytes_in, bytes_out, limit), at):
            words[word] = number
        words[total + STATE] = state
        return True

    def free_booked(self, lines: Iterable[CountedLine]) -> None:
        """All that is in these lines, which are final, is booked, and in the total."""
        for each in lines:
            for word in (BOOKED, BOOKED + 2):  # for a process that lives nevertheless
                self._table.words[each.line + word] = each.figures[0]
                self._table.words[each.line + word + 1] = each.figures[1]
            self.free((each.line,))

    def free(self, lines: Iterable[int]) -> None:
        """These lines say nothing."""
        for line in lines:
            self._table.words[line + OWNER] = 0

    def free_total(self, account_id: str) -> None:
        """Remove the collector's own line if no process uses the account any more."""
        self._free_total(self._digests.of(account_id))

    def free_totals(self) -> None:
        """As `free_total`, of all accounts."""
        for lines in self._table.used():
            owners = memoryview(self._column(lines, OWNER)).cast("Q") if lines else ()
            for at, owner in enumerate(owners):
                if owner == COLLECTOR:
                    self._free_total(self._table.words[lines[at] + KEY])

    def _free_total(self, key: int) -> None:
        words = self._table.words
        with self._table.exclusive(key) as alone:
            lines = list(self._table.all_lines(key)) if alone else []
            if all(words[line + OWNER] in (0, COLLECTOR) for line in lines):
                self.free(line for line in lines if words[line + OWNER] == COLLECTOR)

    def _total(self, key: int) -> int:
        words = self._table.words
        found = (line for line in self._table.all_lines(key) if words[line + OWNER] == COLLECTOR)
        return next((line for line in found if words[line + UNTIL] == FOREVER), NO_LINE)

    def _claim(self, key: int) -> int:
        """As `Table.claim`. Without UNTIL the line is free, since the collector has no place among processes."""
        with self._table.exclusive(key) as alone:
            line = self._table.take(key, COLLECTOR) if alone else NO_LINE
            if line:
                self._table.words[line + UNTIL] = FOREVER
        return line

    def __repr__(self) -> str:
        return f"<BookedUsage in {self._table!r}>"


def open_booked(folder: Path) -> BookedUsage | None:
    """The table in `folder` (`RunDir.state`), made if need be; None until it is known who lives. Raises `OSError`."""
    processes = open_processes(folder / PROCESSES)
    if processes is None:
        return None
    return BookedUsage(make_table(folder / USAGE, TABLE, processes, COLLECTOR), processes)


def _differing(before: bytes, after: bytes) -> Iterator[int]:
    """The numbers of the words of `after` that aren't those of `before`."""
    for begin in range(0, len(after), _BLOCK):
        old, new = before[begin : begin + _BLOCK], after[begin : begin + _BLOCK]
        if old != new:
            for at in range(0, len(new), 8):
                if old[at : at + 8] != new[at : at + 8]:
                    yield (begin + at) // 8


def _read(words: Words, begin: int, end: int) -> str:
    return words[begin:end].tobytes().rstrip(b"\0").decode(errors="replace")
