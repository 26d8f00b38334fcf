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
Processes stop reading at that number, until there is a larger one. With `NO_MORE` in it there is none before the
fleet's database is back.

**Periods are those of one clock.** In a fleet it is the database's, and the collector says in the header by how much
that is ahead of this machine's. Else a process whose clock is wrong would begin a period of its own, about which the
collector says nothing, and stop there.
"""

from __future__ import annotations

import time
from typing import Final

from actors.mapped_file import Words
from actors.state.live_state import Digests, LiveState, LiveTable
from actors.state.table import COLLECTOR, FOREVER, NO_LINE, NUMBERS, OWNER, UNTIL, Table, TableKind
from config.model.choices import PERIODS

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
BOOKED: Final = NUMBERS + 12
ACCOUNT: Final = NUMBERS + 16
PROXY: Final = NUMBERS + 20
ADDRESS: Final = NUMBERS + 24
NAME: Final = NUMBERS + 31
LINE: Final = NUMBERS + 47

STATE: Final = NUMBERS
TOTAL: Final = NUMBERS + 1
TOTAL_WORDS: Final = 4
NO_MORE: Final = 1
"""The lowest bit of the number up to which an account may be used, which is even otherwise."""

AHEAD: Final = 3
"""The word of the header with the microseconds by which the clock of periods is ahead, a number with a sign."""

TABLE: Final = TableKind(USAGE, pages=128, lines=2**25, line=LINE)
"""Of the machine: 200 processes may use 160,000 accounts each. 408 bytes for each account that a process uses."""

_ATTEMPTS: Final = 8
"""To read numbers while the collector writes others."""


def seconds_ahead(words: Words) -> float:
    """By how much the clock of periods is ahead of this machine's."""
    found = words[AHEAD]
    return (found - 2**64 if found >= 2**63 else found) / 1_000_000


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
        self._ahead_word = 0
        self._fleet_offset = 0.0
        """Seconds by which the fleet's time is ahead of the monotonic clock, since that word was there first."""

    def wall(self) -> float:
        """Unix seconds, by the clock that periods go by.

        In a fleet a step of this machine's clock changes nothing: the collector says each second how far that is off,
        and until then it is not read.
        """
        table = self.live.present()
        word = 0 if table is None else table.words[AHEAD]
        if table is None or not word:
            return time.time()
        if word != self._ahead_word:
            self._ahead_word = word
            self._fleet_offset = time.time() + seconds_ahead(table.words) - time.monotonic()
        return time.monotonic() + self._fleet_offset

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
        "no_more",
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
        self.no_more = False
        """Whether that stays so until the fleet's database is back."""

    # --- the line of this process ---

    def claim(self) -> bool:
        """Count in the table from now on. Returns whether that is so; it can be tried again.

        What was counted in a line that is another's now, and is not booked, is counted in a new one.
        """
        self._leave_lost()
        fits = len(self._account_id.encode()) <= _bytes(ACCOUNT, PROXY)
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
        words[line + BYTES_IN : line + BOOKED] = self.numbers[BYTES_IN:]
        words[line + ACCOUNT : line + PROXY] = _text(self._account_id, _bytes(ACCOUNT, PROXY))
        words[line + PROXY : line + ADDRESS] = _text(self._process.proxy_id, _bytes(PROXY, ADDRESS))
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
            self.numbers[BYTES_IN] = words[line + BYTES_IN] - words[line + BOOKED]
            self.numbers[BYTES_OUT] = words[line + BYTES_OUT] - words[line + BOOKED + 1]
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
            self.numbers[self.line + NAME : self.line + LINE] = _text(username, _bytes(NAME, LINE))

    def seen_at(self, address: str) -> None:
        """The client's address, when the account was used last."""
        self._address = address
        if self.line:
            self.numbers[self.line + ADDRESS : self.line + NAME] = _text(address, _bytes(ADDRESS, NAME))

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
    def writes(self) -> int:
        """Another number each time that the collector has written something of the account."""
        return self.numbers[self._total + STATE] if self.line and self._total else 0

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
        at = self._total + TOTAL + TOTAL_WORDS * place
        if self._state and words[at] == self._period:
            booked = BOOKED + 2 * place
            self._booked_in = words[at + 1] - sum(words[line + booked] for line in lines)
            self._booked_out = words[at + 2] - sum(words[line + booked + 1] for line in lines)
            may_use = words[at + 3]
            self.may_use, self.no_more, self.known = may_use & ~NO_MORE, may_use & NO_MORE != 0, True
        elif not self.known or self._state:  # else the collector is about to write its first total
            names = [(words[line + INSTANCE], serial) for line, serial in self._others]
            begun = [self._begun.get(each, (0, 0)) for each in names]
            begun.append(self._begun.get((self._process.instance, self.serial), (0, 0)))
            self._booked_in, self._booked_out = -sum(each for each, _ in begun), -sum(each for _, each in begun)
            self.may_use, self.no_more, self.known = FOREVER, False, False

    def __repr__(self) -> str:
        return f"<SharedUsage of {self._account_id}: {self.used()} bytes>"


def _private() -> Words:
    """Numbers in the memory of this process alone."""
    return memoryview(bytearray(8 * BOOKED)).cast("Q")


def _bytes(begin: int, end: int) -> int:
    return 8 * (end - begin)


def _text(text: str, size: int) -> Words:
    """A text as words; what is too long is cut behind a character."""
    raw = text.encode()[:size]
    if len(raw) == size:
        raw = raw.decode(errors="ignore").encode()
    return memoryview(raw.ljust(size, b"\0")).cast("Q")
