"""What accounts and credentials use, over all processes of the machine, to the byte: one table (`actors.state.table`).

The lines of an account all have its key. Each process that uses it has one, and counts in it; the metrics collector
has one more, with what the account has used altogether in its period.

| word of a process's line | |
|---|---|
| INSTANCE, SERIAL | by which the collector knows the line; a SERIAL of 0: it says nothing yet |
| BYTES_IN … REFUSALS | what the process has counted in this line, never set back |
| CONNECTIONS, SEEN | that are open; microseconds of Unix time when it was used last |
| QUOTA, PERIOD | bytes, 0 for none, and the number of the kind of period (`config.model.choices.PERIODS`) |
| CHANGES | counts up when there is something new, each second at most |
| BOOKED | twice: what the collector has booked of BYTES_IN and BYTES_OUT |
| ACCOUNT, PROXY, ADDRESS, NAME | texts: ids, the client's address when it was used last, the user name |

All ids are made by the product, of 20 characters. One of more than 32 bytes has no line, which is a problem.

| word of the collector's line | |
|---|---|
| STATE | counts up with each total; its lowest bit says which of what is there twice holds |
| TOTAL | twice: the period (`period_word`), bytes in and out that are booked in it, and up to what it may be used |

The states of a process's line:

1. *new*: it has the key and its owner. A process that is killed here has counted nothing, and the line is free.
2. *counting*: UNTIL is for ever, and SERIAL was written last.
3. *final*: its process has released it, or has ended. No number changes any more.
4. *free*: the collector has booked all of it, and written OWNER. No one else frees a line that counts.

**What an account has used is exact at every moment**: what is booked, and what the lines have beyond what is booked of
them. Booking changes the sum of both by nothing. So a process that knows what was booked at any time needs to know
nothing newer, whether the collector is there or not; only a period or a reset begins with another total.

**The collector writes what isn't in force**: the other TOTAL, and the other BOOKED of each line, then STATE, at once.
Killed between any two of these it leaves the total before, which is as exact. What is booked is stored in its own file
first, by INSTANCE and SERIAL, so a line is booked once however often it is read.

**Up to what an account may be used on this machine** the collector says in TOTAL: `FOREVER` leaves it to the quota.
Processes stop reading at that number, until there is a larger one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from actors.mapped_file import Words
from actors.state.live_state import PROCESSES, Digests, LiveState, LiveTable
from actors.state.processes import LivingProcesses, open_processes
from actors.state.table import FOREVER, KEY, NO_LINE, NUMBERS, OWNER, RELEASED, UNTIL, Table, TableKind, make_table
from config.model.choices import PERIODS

log = logging.getLogger(__name__)

USAGE: Final = "usage"
"""The file in `RunDir.state`."""

INSTANCE: Final = NUMBERS
SERIAL: Final = NUMBERS + 1
BYTES_IN: Final = NUMBERS + 2
BYTES_OUT: Final = NUMBERS + 3
REQUESTS: Final = NUMBERS + 4
MILLISECONDS: Final = NUMBERS + 5
REFUSALS: Final = NUMBERS + 6
CONNECTIONS: Final = NUMBERS + 7
SEEN: Final = NUMBERS + 8
QUOTA: Final = NUMBERS + 9
PERIOD: Final = NUMBERS + 10
CHANGES: Final = NUMBERS + 11
_BOOKED: Final = NUMBERS + 12
_ACCOUNT: Final = NUMBERS + 16
_PROXY: Final = NUMBERS + 20
_ADDRESS: Final = NUMBERS + 24
_NAME: Final = NUMBERS + 31
_LINE: Final = NUMBERS + 47

STATE: Final = NUMBERS
_TOTAL: Final = NUMBERS + 1
_TOTAL_WORDS: Final = 4

TABLE: Final = TableKind(USAGE, pages=128, lines=2**25, line=_LINE)
"""Of the machine: 200 processes may use 160,000 accounts each. 408 bytes for each account that a process uses."""

COLLECTOR: Final = 2
"""The owner of the collector's lines; no process has this number."""
_ATTEMPTS: Final = 8
"""To read numbers while the collector writes others."""
_BLOCK: Final = 8 * 64
"""Bytes of CHANGES that are compared at once."""
_SECOND: Final = 1_000_000
_LARGEST: Final = 2**62
"""No number of a line is larger."""


def period_word(period: str, since: float) -> int:
    """The number that stands for a period."""
    return int(since) << 3 | PERIODS.index(period)


class UsageOfProcess:
    """What one process counts of accounts. Without a table it counts for itself, and the collector knows nothing."""

    def __init__(self, state: LiveState) -> None:
        self.live: LiveTable = state.table(USAGE, TABLE)
        self.shares = state.shares
        self.number = state.number
        self.proxy_id = state.proxy_id
        self.instance = state.instance
        self._serial = 0
        self._digests = Digests(USAGE)

    def account(self, account_id: str) -> SharedUsage:
        """An account or credential that the process uses from now on. It has one of these at a time."""
        return SharedUsage(self, self._digests.of(account_id), account_id, self.next_serial())

    def next_serial(self) -> int:
        """That of a new line."""
        self._serial += 1
        return self._serial

    def __repr__(self) -> str:
        return f"<UsageOfProcess {self.instance} of {self.proxy_id}>"


class SharedUsage:
    """What this process and all others use of one account.

    `numbers` are those of this process from the word `line` on: in the table once it has a line there (`claim`).
    """

    __slots__ = (
        "_account_id",
        "_address",
        "_begun",
        "_booked_in",
        "_booked_out",
        "_bucket",
        "_bucket_at",
        "_key",
        "_name",
        "_others",
        "_period",
        "_process",
        "_state",
        "_total",
        "known",
        "line",
        "may_use",
        "numbers",
        "serial",
    )

    def __init__(self, process: UsageOfProcess, key: int, account_id: str, serial: int) -> None:
        self._process = process
        self._key = key
        self._account_id = account_id
        self.serial = serial
        self.numbers: Words = _private()
        self.line = NO_LINE
        self._name = self._address = ""
        self._period = -1
        self._begun: dict[tuple[int, int], tuple[int, int]] = {}
        """What lines had counted when the period began, by instance and serial: until the collector has its total."""
        self._booked_in = self._booked_out = 0
        """The total, less what is in it of the lines."""
        self._others: tuple[tuple[int, int], ...] = ()
        """The lines of other processes, each with its serial."""
        self._total = NO_LINE
        self._state = 0
        self._bucket_at = self._bucket = -1
        self.known = False
        """Whether the collector has said what was used before."""
        self.may_use = FOREVER
        """Bytes of the period up to which it may be used here."""

    # --- the line of this process ---

    def claim(self) -> bool:
        """Count in the table from now on. Returns whether that is so; it can be tried again.

        What was counted in a line that is another's now, and is not booked, is counted in a new one.
        """
        self._leave_lost()
        fits = len(self._account_id.encode()) <= _bytes(_ACCOUNT, _PROXY)
        table = None if self.line or not fits else self._process.live.made()
        line = NO_LINE if table is None else table.claim(self._key)
        if table is None or not line:
            return self.line != NO_LINE
        words = table.words
        if words[line + SERIAL]:  # the account came back: what is counted late is in its new line
            for word in range(BYTES_IN, CONNECTIONS):
                words[line + word] += self.numbers[word]
            words[line + CHANGES] += 1
            self.numbers = _private()
            return False
        words[line + INSTANCE] = self._process.instance
        words[line + BYTES_IN : line + _BOOKED] = self.numbers[BYTES_IN:]
        words[line + _ACCOUNT : line + _PROXY] = _text(self._account_id, _bytes(_ACCOUNT, _PROXY))
        words[line + _PROXY : line + _ADDRESS] = _text(self._process.proxy_id, _bytes(_PROXY, _ADDRESS))
        self.numbers, self.line, self._bucket = words, line, -1
        self.name(self._name)
        self.seen_at(self._address)
        words[line + UNTIL] = FOREVER
        words[line + SERIAL] = self.serial
        return True

    def _leave_lost(self) -> None:
        """The collector has freed the line where the process was dead by the list of processes."""
        line, words, name = self.line, self.numbers, (self._process.instance, self.serial)
        if not line or (words[line + OWNER], words[line + SERIAL]) == (self._process.number, self.serial):
            return
        self.line, self.numbers, self.serial = NO_LINE, _private(), self._process.next_serial()
        if (words[line + INSTANCE], words[line + SERIAL]) == name:
            self.numbers[BYTES_IN] = words[line + BYTES_IN] - words[line + _BOOKED]
            self.numbers[BYTES_OUT] = words[line + BYTES_OUT] - words[line + _BOOKED + 1]
            self.numbers[CONNECTIONS:CHANGES] = words[line + CONNECTIONS : line + CHANGES]

    def failed(self) -> None:
        """What it counts can't be booked for so long."""
        self._process.live.on_failure(
            f"no room is left for what accounts use, or a process that counts it hangs: {self._account_id}"
        )

    def release(self) -> None:
        """The process counts nothing more of the account."""
        table = self._process.live.present()
        if self.line and table is not None:
            line, self.line, self.numbers = self.line, NO_LINE, _private()
            self.serial = self._process.next_serial()
            table.words[line + CONNECTIONS] = 0
            table.words[line + CHANGES] += 1
            table.release(line)

    def name(self, username: str) -> None:
        """The account's user name is this."""
        self._name = username
        if self.line:
            self.numbers[self.line + _NAME : self.line + _LINE] = _text(username, _bytes(_NAME, _LINE))

    def seen_at(self, address: str) -> None:
        """The client's address, when the account was used last."""
        self._address = address
        if self.line:
            self.numbers[self.line + _ADDRESS : self.line + _NAME] = _text(address, _bytes(_ADDRESS, _NAME))

    # --- what all use ---

    def begin(self, period: int, goes_on: bool = False) -> None:
        """A period begins, by the word that stands for it: from now on, until the collector knows more of it.

        `goes_on`: what this process has counted in it before still counts.
        """
        own, name = self.numbers, (self._process.instance, self.serial)
        before = self._begun.get(name, (0, 0))
        self._begun = {name: before if goes_on else (own[self.line + BYTES_IN], own[self.line + BYTES_OUT])}
        self._period, self.known, self._bucket = period, False, -1
        table = self._process.live.present()
        if table is not None:
            words = table.words
            for line in table.all_lines(self._key):
                if words[line + OWNER] not in (0, COLLECTOR) and line != self.line:
                    of_line = words[line + INSTANCE], words[line + SERIAL]
                    self._begun[of_line] = words[line + BYTES_IN], words[line + BYTES_OUT]
        self._reread(table)

    def include(self, bytes_in: int, bytes_out: int) -> None:
        """So much was used in the period, where there is no table to read that from."""
        counted_in, counted_out = self.used_in_and_out()
        self._booked_in += bytes_in - counted_in
        self._booked_out += bytes_out - counted_out
        self.known = True

    def forget(self) -> None:
        """What was included is not known any more."""
        self.known = False

    def used(self) -> int:
        """Bytes that all processes have used in the period."""
        line = self.line
        if line and not self._others and self._bucket >= 0:
            words, total = self.numbers, self._total
            used = self._booked_in + self._booked_out + words[line + BYTES_IN] + words[line + BYTES_OUT]
            if words[self._bucket_at] == self._bucket and (not total or words[total + STATE] == self._state):
                return used  # most accounts are used by one process
        used_in, used_out = self.used_in_and_out()
        return used_in + used_out

    def used_in_and_out(self) -> tuple[int, int]:
        """As `used`, for each direction."""
        used_in = used_out = 0
        table = self._process.live.present()
        for _ in range(_ATTEMPTS):
            self._reread(table)
            own = self.numbers
            used_in = self._booked_in + own[self.line + BYTES_IN]
            used_out = self._booked_out + own[self.line + BYTES_OUT]
            if table is None:
                break
            words = table.words
            for line, serial in self._others:
                used_in += words[line + BYTES_IN]
                used_out += words[line + BYTES_OUT]
                if words[line + SERIAL] != serial:
                    self._bucket = -1  # it is another's now
            if self._bucket >= 0 and not self._is_outdated(words):
                break
        return used_in, used_out

    @property
    def processes(self) -> int:
        """How many use the account, this one included."""
        return 1 + len(self._others)

    def _is_outdated(self, words: Words) -> bool:
        total = self._total
        return words[self._bucket_at] != self._bucket or (total != NO_LINE and words[total + STATE] != self._state)

    def _reread(self, table: Table | None) -> None:
        """Read which lines there are, and the total, if they are others."""
        if table is None:
            if self._bucket == -1 and self._begun:
                begun = self._begun.get((self._process.instance, self.serial), (0, 0))
                self._booked_in, self._booked_out, self._bucket = -begun[0], -begun[1], 0
            return
        words = table.words
        if self._bucket_at < 0:
            self._bucket_at = table.bucket(self._key)
        elif self._bucket >= 0 and not self._is_outdated(words):
            return
        for _ in range(_ATTEMPTS):
            bucket, total, others = words[self._bucket_at], NO_LINE, []
            for line in table.all_lines(self._key):
                owner = words[line + OWNER]
                if owner == COLLECTOR:
                    total = line
                elif owner and line != self.line:
                    others.append((line, words[line + SERIAL]))
            self._bucket, self._total, self._others = bucket, total, tuple(others)
            self._state = words[total + STATE] if total else 0
            self._take(words)
            if not self._is_outdated(words):
                return

    def _take(self, words: Words) -> None:
        """What is to be added to what the lines have counted."""
        lines = [line for line, _ in self._others]
        if self.line:
            lines.append(self.line)
        place = self._state & 1
        at = self._total + _TOTAL + _TOTAL_WORDS * place
        if self._state and words[at] == self._period:
            booked = _BOOKED + 2 * place
            self._booked_in = words[at + 1] - sum(words[line + booked] for line in lines)
            self._booked_out = words[at + 2] - sum(words[line + booked + 1] for line in lines)
            self.may_use, self.known = words[at + 3], True
        elif not self.known or self._state:  # else the collector is about to write its first total
            names = [(words[line + INSTANCE], serial) for line, serial in self._others]
            begun = [self._begun.get(each, (0, 0)) for each in names]
            begun.append(self._begun.get((self._process.instance, self.serial), (0, 0)))
            self._booked_in, self._booked_out = -sum(each for each, _ in begun), -sum(each for _, each in begun)
            self.may_use, self.known = FOREVER, False

    def __repr__(self) -> str:
        return f"<SharedUsage of {self._account_id}: {self.used()} bytes>"


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
        numbers = words[line : line + _LINE].tolist()
        final = ended and numbers[OWNER] == owner  # else it is another's by now
        if numbers[OWNER] in (0, COLLECTOR) or not numbers[SERIAL]:
            if final and numbers[UNTIL] == FOREVER:  # else it is free already
                self.free((line,))
            return None
        account_id = _read(words, line + _ACCOUNT, line + _PROXY)
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
            _read(words, line + _NAME, line + _LINE),
            _read(words, line + _PROXY, line + _ADDRESS),
            numbers[INSTANCE],
            numbers[SERIAL],
            numbers[QUOTA],
            PERIODS[period],
            tuple(numbers[BYTES_IN:CONNECTIONS]),
            0 if final else numbers[CONNECTIONS],
            numbers[SEEN] / _SECOND,
            _read(words, line + _ADDRESS, line + _NAME),
            final,
        )

    def lines_of(self, account_id: str) -> list[CountedLine]:
        """What all processes have counted of an account."""
        found = (self.read(line) for line in self._table.all_lines(self._digests.of(account_id)))
        return [each for each in found if each is not None]

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
    ) -> bool:
        """What the account has used in its period, by the word for that, with what is in it of each line.

        `booked` is by instance and serial. Returns false if it can't be written now.
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
                words[line + _BOOKED + 2 * place] = of_line[0]
                words[line + _BOOKED + 2 * place + 1] = of_line[1]
        at = total + _TOTAL + _TOTAL_WORDS * place
        for word, number in enumerate((period, bytes_in, bytes_out, may_use), at):
            words[word] = number
        words[total + STATE] = state
        return True

    def free_booked(self, lines: Iterable[CountedLine]) -> None:
        """All that is in these lines, which are final, is booked, and in the total."""
        for each in lines:
            for word in (_BOOKED, _BOOKED + 2):  # for a process that lives nevertheless
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


def _private() -> Words:
    """Numbers in the memory of this process alone."""
    return memoryview(bytearray(8 * _BOOKED)).cast("Q")


def _bytes(begin: int, end: int) -> int:
    return 8 * (end - begin)


def _text(text: str, size: int) -> Words:
    """A text as words; what is too long is cut behind a character."""
    raw = text.encode()[:size]
    if len(raw) == size:
        raw = raw.decode(errors="ignore").encode()
    return memoryview(raw.ljust(size, b"\0")).cast("Q")


def _read(words: Words, begin: int, end: int) -> str:
    return words[begin:end].tobytes().rstrip(b"\0").decode(errors="replace")
