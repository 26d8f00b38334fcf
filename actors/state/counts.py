"""What is counted of one key: open connections, the requests of the last minute, and what moves.

Requests are counted by seconds: a request counts for the rest of its second and 60 more, so there are never more than
the limit in any minute, and a place is free at most a second late. The word WINDOW has the last second and the sum of
all that counted then, so that most readings are of one word; behind it are the counts of 64 seconds, of which the
three after the last one are always 0. Each step writes WINDOW first when something is added and when time goes on: one
who reads in between, or a process that is killed there, is never below the truth.

A limit is checked first and what it admits is counted then, in the same turn of the loop. So it is exceeded by no more
than what others admit in the same microseconds, one each. Never is one refused too many.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from actors.mapped_file import Words
from actors.state.processes import PLACE_MASK
from actors.state.table import COLLECTOR, KEY, NO_LINE, NUMBERS, OWNER, UNTIL

if TYPE_CHECKING:
    from actors.state.live_state import LiveTable

CONNECTIONS: Final = NUMBERS
WINDOW: Final = NUMBERS + 1
LIMITS: Final = NUMBERS + 2
"""Two words, for the collector: the limits of connections and of requests, or `DIVIDED`."""
DIVIDED: Final = 2**63
"""In place of a limit: it is a bandwidth."""
MOVED: Final = NUMBERS + 4
"""The first of those of a bandwidth."""
_SECONDS: Final = NUMBERS + 4
_RING: Final = 64
LINE: Final = _SECONDS + _RING // 4
"""Words of a line."""

COUNTED: Final = 61
"""Seconds in which a request counts: its own, and a minute."""
_CLEAR: Final = _RING - COUNTED
"""Seconds after the last one whose counts are 0."""
_NO_REQUESTS: Final[Words] = memoryview(bytes(2 * _RING)).cast("Q")
_SUM: Final = 2**32 - 1
_MOST: Final = 2**16 - 1
"""Requests of a second that can be counted."""
_SPREAD: Final = 54
"""Seconds over which a sum is spread: the latest, so that none of it is over for some seconds."""
PERIOD: Final = 0.1
"""Seconds after which a bandwidth is divided anew."""
SILENT_PERIODS: Final = 3
"""A process that has said nothing for so many periods moves nothing."""


def period_at(now: float) -> int:
    """The period of a moment of the monotonic clock."""
    return int(now / PERIOD)


class Moved(NamedTuple):
    """What one process moved in one period: bytes, flows that had to wait, and bytes of the second up to its end."""

    bytes_in: int
    bytes_out: int
    flows_in: int
    flows_out: int
    lately_in: int
    lately_out: int


class Numbers:
    """Words with the same memory in parts of 16 bits."""

    __slots__ = ("halves", "words")

    def __init__(self, words: Words) -> None:
        self.words = words
        self.halves: Words = words.cast("B").cast("H")


class SharedKey:
    """What all processes count of one key, and this one among them. It has a line from when it counts something.

    A process has one of these for a key: another one would take what it counts for that of another process.
    """

    __slots__ = ("_bucket", "_bucket_at", "_key", "_limits", "_line", "_live", "_others", "_own")

    def __init__(self, live: LiveTable, key: int) -> None:
        self._live = live
        self._key = key
        self._own: Numbers | None = None
        """Where this process counts: in the table, or alone; None: nowhere so far."""
        self._line = NO_LINE
        """Its line of the table."""
        self._bucket_at = -1
        self._bucket = -1
        self._others: tuple[int, ...] = ()
        """The other lines of the key, as of this value of the word of the bucket."""
        self._limits = 0, 0

    # --- lines ---

    def _place(self) -> Numbers:
        """Where this process counts, from now on."""
        if self._own is None:
            self.claim()
        assert self._own is not None
        return self._own

    def claim(self) -> bool:
        """Count in a line of the table, also what was counted without one. Returns whether there is one."""
        alone, live = self._own, self._live
        line = live.claim(self._key)
        if line == NO_LINE:
            self._own = alone or Numbers(memoryview(bytearray(8 * LINE)).cast("Q"))
            live.claim_later(self)
            return False
        self._own, self._line, self._bucket = live.numbers, line, -1
        if alone is not None:
            live.numbers.words[line + UNTIL : line + LINE] = alone.words[UNTIL:]
        self._write_limits()
        return True

    def set_limits(self, first: int, second: int = 0) -> None:
        """These are the words `LIMITS`."""
        self._limits = first, second
        if self._line:
            self._write_limits()

    def _write_limits(self) -> None:
        words, first = self._live.numbers.words, self._line + LIMITS
        words[first], words[first + 1] = self._limits

    def release(self) -> None:
        """This process counts nothing of the key any more. Its requests count on."""
        table = self._live.present()
        if self._line and table is not None:
            table.words[self._line + CONNECTIONS] = 0
            table.release(self._line)
        self._live.release(self)
        self._own, self._line, self._bucket = None, NO_LINE, -1

    def _of_others(self) -> tuple[int, ...]:
        """The lines of other processes, also of those that have ended."""
        if self.unchanged:
            return self._others
        table = self._live.present()
        if table is None:
            return ()
        self._bucket_at = table.bucket(self._key)
        self._bucket = table.words[self._bucket_at]
        self._others = tuple(line for line in table.all_lines(self._key) if line != self._line)
        return self._others

    def _of_living(self) -> list[int]:
        """The lines of the other processes that live."""
        others = self._of_others()
        if not others:
            return []
        words, places, key, found = self._live.numbers.words, self._live.processes.places, self._key, []
        for line in others:
            owner = words[line + OWNER]
            if not owner or words[line] != key:
                continue
            of_nodes = owner == COLLECTOR and words[line + UNTIL] > 1000 * self._live.clock()
            if of_nodes or places[owner & PLACE_MASK] == owner:
                found.append(line)
        return found

    @property
    def unchanged(self) -> bool:
        """Whether the others are those that were asked for last: no other process has begun since."""
        if self._bucket_at < 0:
            return self._live.present() is None
        return self._live.numbers.words[self._bucket_at] == self._bucket

    # --- connections ---

    def connections(self) -> int:
        """Those of the other processes."""
        return sum(self.connections_of_each()) if self._of_others() else 0

    def connections_of_each(self) -> list[int]:
        """Those of each other process that has a line of the key."""
        living = self._of_living()
        words = self._live.numbers.words
        return [words[line + CONNECTIONS] for line in living]

    def set_connections(self, count: int) -> None:
        """So many are open here."""
        if count or self._own is not None:
            self._place().words[self._line + CONNECTIONS] = count

    # --- requests ---

    def try_acquire(self, limit: int) -> int:
        """Count one request and return 0; when `limit` is reached, count nothing and return the seconds to wait."""
        now = self._live.clock()
        second = int(now)
        if self._requests(second) >= limit:
            return max(1, math.ceil(self._wait(limit, now)))
        self._add(second, 1)
        return 0

    def requests(self) -> int:
        """Those that count, of all processes."""
        return self._requests(int(self._live.clock()))

    def add_requests(self, count: int) -> None:
        """Count so many here."""
        self._add(int(self._live.clock()), count)

    @property
    def own_requests(self) -> int:
        """Those that count, of this process."""
        own = self._own
        return 0 if own is None else requests_in(own, self._line, int(self._live.clock()))

    def _requests(self, second: int) -> int:
        own, others = self._own, self._of_others()
        total = 0
        if own is not None:
            word = own.words[self._line + WINDOW]
            total = word & _SUM if word >> 32 == second else requests_in(own, self._line, second)
        if others:
            numbers, key = self._live.numbers, self._key
            words = numbers.words
            for line in others:
                word = words[line + WINDOW]
                count = word & _SUM
                if count and word >> 32 != second:
                    count = requests_in(numbers, line, second)
                if count and words[line + KEY] == key and words[line + OWNER]:
                    total += count
        return total

    def _add(self, second: int, count: int) -> None:
        numbers = self._own or self._place()
        words, halves, line = numbers.words, numbers.halves, self._line
        word = words[line + WINDOW]
        if word >> 32 < second:
            _advance(numbers, line, second)
            words[line + UNTIL] = 1000 * (second + COUNTED)
            word = words[line + WINDOW]
        at = 4 * (line + _SECONDS) + (word >> 32) % _RING
        count = min(count, _MOST - halves[at])
        words[line + WINDOW] = word + count
        halves[at] += count

    def _wait(self, limit: int, now: float) -> float:
        """Seconds until fewer than `limit` count."""
        second = int(now)
        total = self._requests(second)
        places = [(self._own, self._line)] if self._own is not None else []
        places += [(self._live.numbers, line) for line in self._of_others()]
        for passed in range(second + 1 - COUNTED, second + 1):
            total -= sum(_of_second(numbers, line, passed) for numbers, line in places)
            if total < limit:
                return passed + COUNTED - now
        return COUNTED

    # --- bandwidth ---

    def write_moved(self, period: int, moved: Moved) -> None:
        """This is what moved here in this period."""
        write_moved(self._place().words, self._line, period, moved)

    def begin(self) -> None:
        """This process is one of those that the others see, from now on."""
        self._place()

    def moved_by_others(self, period: int) -> list[Moved]:
        """What moved at each of the others that are not silent."""
        living, found = self._of_living(), []
        words = self._live.numbers.words
        for line in living:
            moved = moved_in(words, line, period)
            if moved is not None:
                found.append(moved)
        return found

    def __repr__(self) -> str:
        return f"<SharedKey {self._key:x}: {self.requests()} requests>"


def moved_in(words: Words, line: int, period: int) -> Moved | None:
    """What a line says that moved lately; None when its process is silent."""
    first = line + MOVED
    if words[first] <= period - SILENT_PERIODS:
        return None
    return Moved(*words[first + 1 : first + 1 + len(Moved._fields)].tolist())


def write_moved(words: Words, line: int, period: int, moved: Moved) -> None:
    """This is what moved in this period, says a line."""
    first = line + MOVED
    for place, number in enumerate(moved, first + 1):
        words[place] = number
    words[first] = period


def write_requests(words: Words, line: int, second: int, count: int) -> None:
    """So many requests count in this second, says a line: of a sum of which nothing else is known.

    It stays the same for some seconds, and is over after a minute.
    """
    count = min(count, _SPREAD * _MOST)
    each, more = divmod(count, _SPREAD)
    seconds = [0] * _RING
    for age in range(_SPREAD):
        seconds[(second - age) % _RING] = each + (age < more)
    words[line + _SECONDS : line + LINE] = memoryview(struct.pack(f"{_RING}H", *seconds)).cast("Q")
    words[line + WINDOW] = second << 32 | count


def requests_in(numbers: Numbers, line: int, second: int) -> int:
    """The requests of a line that count in this second."""
    words = numbers.words
    while True:
        word = words[line + WINDOW]
        late = second - (word >> 32)
        if late <= 0:
            return word & _SUM
        if late >= COUNTED or not word & _SUM:
            return 0
        over = range((word >> 32) + 1 - COUNTED, second + 1 - COUNTED)
        halves, first = numbers.halves, 4 * (line + _SECONDS)
        total = (word & _SUM) - sum(halves[first + each % _RING] for each in over)
        if words[line + WINDOW] == word:
            return max(0, total)


def _of_second(numbers: Numbers, line: int, second: int) -> int:
    """The requests of one second, if they are known still."""
    last = numbers.words[line + WINDOW] >> 32
    return numbers.halves[4 * (line + _SECONDS) + second % _RING] if last - COUNTED < second <= last else 0


def _advance(numbers: Numbers, line: int, second: int) -> None:
    """Make this the last second, by steps of which each leaves numbers that fit together."""
    words, halves, first = numbers.words, numbers.halves, 4 * (line + _SECONDS)
    last, total = words[line + WINDOW] >> 32, words[line + WINDOW] & _SUM
    if second - last >= COUNTED:
        words[line + WINDOW] = second << 32
        words[line + _SECONDS : line + LINE] = _NO_REQUESTS
        return
    while last < second:
        step = min(_CLEAR, second - last)
        over = sum(halves[first + each % _RING] for each in range(last + 1 - COUNTED, last + 1 + step - COUNTED))
        last, total = last + step, max(0, total - over)
        words[line + WINDOW] = last << 32 | total
        for each in range(last + 1, last + 1 + _CLEAR):
            halves[first + each % _RING] = 0
