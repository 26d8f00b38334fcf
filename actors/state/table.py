"""The format of live state: a mapped file of *lines*, found by key, each counted in by one process.

A file is a header, a word for each *bucket*, and lines of one size. A word has 64 bits, is aligned, and is written at
once.

| word of a line | |
|---|---|
| KEY | what is counted: a digest that isn't 0 |
| OWNER | number of the process that writes the line (`actors.state.processes`); 0: free |
| NEXT | the next line of the bucket; 0: none |
| UNTIL | milliseconds of the monotonic clock until which the numbers count though their process has ended |
| … | numbers, by what the table is for |

**A line has one writer, its owner**, so counting takes no lock. Only its claim does, of the one byte of the file that
stands for the bucket: a process that hangs within it blocks one bucket, and a claim that can't be made fails within a
millisecond. To release a line takes none.

**A line is never taken out of its bucket**, and never moved: who reads walks from line to line without a lock, and
verifies KEY once the numbers are read. A line that says nothing any more, since its process has ended or has released
it, and UNTIL is over, is used again by the next claim in its bucket.

**A process can be killed between any two writes.** A new line has all its words before its bucket names it, and a line
that is used again has no owner until all of it is another's. What a kill can cost is a line that no bucket names.

A bucket's word is its first line in the lower half, and in the upper the number of claims: while it is the same, the
lines that a key had are those that it has.

The file is as large as it can become, and sparse. Buckets are allocated when it is made, lines in chunks before their
first use: a hole on a full file system would end the process that touches it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from pathlib import Path
from typing import Final, NamedTuple

from actors.mapped_file import MARK, Words, mark
from actors.state.processes import LivingProcesses

KEY, OWNER, NEXT, UNTIL = range(4)
"""Words of a line."""
NUMBERS: Final = 4
"""The word of its first number."""
NO_LINE: Final = 0
RELEASED: Final = 1
"""The owner of a line that counts until UNTIL and no longer; no process has this number. All may write such a line."""
COLLECTOR: Final = 2
"""The owner of the metrics collector's lines; no process has this number. They count until UNTIL."""
FOREVER: Final = 2**63
"""An UNTIL that never comes."""

_MAGIC: Final = b"pfstate\1"
_USED: Final = 4
"""The first of the words that say how many lines of a stripe are in use."""
_STRIPES: Final = 4
"""Parts of the lines, each with a lock of its own for those that take a new one."""
_HEADER: Final = 8
_PAGE: Final = 4096
_CHUNK: Final = 4 * _PAGE
"""Bytes that are allocated at once, of a small table fewer."""
_FIRST_LINE: Final = 2**32 - 1
_LOCK: Final = struct.Struct("@hhqqi4x")
"""`struct flock`."""
_ATTEMPTS: Final = 20
_PAUSE: Final = 50e-6
"""Seconds between two attempts to get a lock."""
_MAKING: Final = 40
"""Attempts to get the lock of those that make files: a few milliseconds, since a proxy's clients wait meanwhile."""


_SEARCHED: Final = 64
"""Lines of a bucket among which one is found that says nothing any more, for an owner that is `RELEASED`."""


class TableKind(NamedTuple):
    """What a table is: its name, pages of the header and the buckets, lines at most, and words of a line."""

    name: str
    pages: int
    lines: int
    line: int

    @property
    def buckets(self) -> int:
        """How many there are."""
        return self.pages * _PAGE // 8 - _HEADER

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.pages * _PAGE + self.lines * 8 * self.line

    @property
    def mark(self) -> bytes:
        """How the file begins."""
        return mark(_MAGIC, repr(tuple(self)).encode())


class Table:
    """One file, for the process with this number (`open_table`, `make_table`)."""

    def __init__(
        self, descriptor: int, kind: TableKind, processes: LivingProcesses, number: int, clock: Callable[[], float]
    ) -> None:
        """`descriptor` is of a valid file, `clock` the monotonic one, in seconds. Raises `OSError`."""
        self._descriptor = descriptor
        self._processes = processes
        self._number = number
        self._clock = clock
        self._buckets = kind.buckets
        self._line = kind.line
        self._begin = kind.pages * _PAGE // 8
        """The word of the first line."""
        self._stripe = kind.lines // _STRIPES
        """Lines of a stripe."""
        self._chunk = max(1, min(_CHUNK, kind.pages * _PAGE) // (8 * kind.line))
        """Lines that are allocated at once."""
        self._no_numbers: Words = memoryview(bytes(8 * (kind.line - UNTIL))).cast("Q")
        try:
            self.words: Words = memoryview(mmap.mmap(self._descriptor, kind.size)).cast("Q")
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. Lines that aren't released count for as long as the process lives."""
        os.close(self._descriptor)
        self._descriptor = -1

    # --- without a lock ---

    def bucket(self, key: int) -> int:
        """Where the word of its bucket is, which has another value after each claim in it."""
        return _HEADER + key % self._buckets

    def lines(self, key: int) -> Iterator[int]:
        """The lines of a key that count: their process lives, or UNTIL isn't over."""
        now = self.now()
        return (line for line in self.all_lines(key) if not self._is_spent(line, now))

    def all_lines(self, key: int) -> Iterator[int]:
        """The lines of a key, also those that count no more. They are the same as long as `bucket` is."""
        words = self.words
        return (line for line in self._chain(key) if words[line] == key)

    def release(self, line: int) -> None:
        """The line's numbers count until UNTIL, and no longer."""
        self.words[line + OWNER] = RELEASED

    def used(self) -> Iterator[range]:
        """Where the lines are that were ever in use, a range of words for each part of the file."""
        for stripe in range(_STRIPES):
            count = min(self.words[_USED + stripe], self._stripe)
            yield range(self._line_at(stripe, 0), self._line_at(stripe, count), self._line)

    def spent_after(self) -> float:
        """Seconds until no line says anything any more, where no process lives that has one; 0 when none does."""
        ends = (self.words[each.start + UNTIL : each.stop : self._line].tolist() for each in self.used())
        return max(0, max(max(each, default=0) for each in ends) - self.now()) / 1000

    # --- with a lock ---

    def claim(self, key: int) -> int:
        """The line of this process for a key, numbers at zero if it is new; `NO_LINE` when it can't have one now."""
        with self.exclusive(key) as alone:
            return self.take(key, self._number) if alone else NO_LINE

    @contextmanager
    def exclusive(self, key: int) -> Iterator[bool]:
        """Whether no other process claims a line of this bucket meanwhile; false within a millisecond."""
        at = 8 * self.bucket(key)
        alone = self._lock(at, _ATTEMPTS)
        try:
            yield alone
        finally:
            if alone:
                self._set_lock(at, fcntl.F_UNLCK)

    def take(self, key: int, owner: int) -> int:
        """As `claim`, within `exclusive`, for any owner. One that is `RELEASED` gets a line of its own each time."""
        words, now, spent = self.words, self.now(), NO_LINE
        for line in islice(self._chain(key), _SEARCHED if owner == RELEASED else None):
            if words[line + OWNER] == owner != RELEASED and words[line] == key:
                return line
            if not spent and self._is_spent(line, now):
                spent = line
        return self._use(key, owner, spent)

    def take_all(self, key: int, owner: int, count: int) -> list[int]:
        """As `take`, so many lines of their own for an owner that is `RELEASED`; as many as there are."""
        now = self.now()
        spent = list(islice((each for each in self._chain(key) if self._is_spent(each, now)), count))
        taken = (self._use(key, owner, spent[number] if number < len(spent) else NO_LINE) for number in range(count))
        return list(takewhile(bool, taken))

    def _use(self, key: int, owner: int, spent: int) -> int:
        """Let it be a line of this key: one that is `spent`, else a new one."""
        words = self.words
        bucket = self.bucket(key)
        first = words[bucket] & _FIRST_LINE
        line = spent or self._new_line()
        if not line:
            return NO_LINE
        words[line + OWNER] = 0
        words[line + UNTIL : line + self._line] = self._no_numbers
        words[line] = key
        if not spent:
            words[line + NEXT] = first
            first = line
        words[line + OWNER] = owner
        self._set_bucket(bucket, first)
        return line

    def changed(self, key: int) -> int:
        """Let all that remember something of this bucket look again, within `exclusive`. Returns its new word."""
        bucket = self.bucket(key)
        return self._set_bucket(bucket, self.words[bucket] & _FIRST_LINE)

    def _set_bucket(self, bucket: int, first: int) -> int:
        word = self.words[bucket] = ((self.words[bucket] >> 32) + 1 & _FIRST_LINE) << 32 | first
        return word

    def _chain(self, key: int) -> Iterator[int]:
        """The lines of a bucket. What isn't a line ends it: another program has written there."""
        words, begin, size = self.words, self._begin, self._line
        end = len(words)
        line = words[self.bucket(key)] & _FIRST_LINE
        for _ in range(_STRIPES * self._stripe):
            if not begin <= line < end or (line - begin) % size:
                return
            yield line
            line = words[line + NEXT]

    def _is_spent(self, line: int, now: int) -> bool:
        """Whether it says nothing any more."""
        words = self.words
        owner = words[line + OWNER]
        return not owner or (words[line + UNTIL] <= now and not self._processes.lives(owner))

    def _new_line(self) -> int:
        """One that was never used, of the first stripe that isn't full or locked; none on a full file system."""
        for stripe in range(_STRIPES):
            if self.words[_USED + stripe] < self._stripe and self._lock(8 * (_USED + stripe), 1):
                try:
                    return self._first_unused(stripe)
                finally:
                    self._set_lock(8 * (_USED + stripe), fcntl.F_UNLCK)
        return NO_LINE

    def _first_unused(self, stripe: int) -> int:
        used = self.words[_USED + stripe]
        if used >= self._stripe:
            return NO_LINE
        line = self._line_at(stripe, used)
        if used % self._chunk == 0:
            try:
                os.posix_fallocate(self._descriptor, 8 * line, 8 * self._line * min(self._chunk, self._stripe - used))
            except OSError:
                return NO_LINE
        self.words[_USED + stripe] = used + 1
        return line

    def _line_at(self, stripe: int, number: int) -> int:
        return self._begin + self._line * (self._stripe * stripe + number)

    def _lock(self, at: int, attempts: int) -> bool:
        for attempt in range(attempts):
            if attempt:
                time.sleep(_PAUSE)
            if self._set_lock(at, fcntl.F_WRLCK):
                return True
        return False

    def _set_lock(self, at: int, kind: int) -> bool:
        """A lock of the open file, so that it ends with the process, whatever state that is in. Raises `OSError`."""
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, at, 1, 0))
        except BlockingIOError:
            return False
        return True

    def now(self) -> int:
        """Milliseconds of the clock."""
        return int(1000 * self._clock())

    def __repr__(self) -> str:
        return f"<Table: {sum(self.words[_USED : _USED + _STRIPES])} lines>"


def open_table(
    path: Path, kind: TableKind, processes: LivingProcesses, number: int, clock: Callable[[], float] = time.monotonic
) -> Table | None:
    """The table in a file, for the process with this number; None without a valid one. Raises `OSError`."""
    descriptor = _open_valid(path, kind)
    return None if descriptor < 0 else Table(descriptor, kind, processes, number, clock)


def make_table(
    path: Path, kind: TableKind, processes: LivingProcesses, number: int, clock: Callable[[], float] = time.monotonic
) -> Table:
    """As `open_table`, with a new file in the place of any that is torn or foreign. Raises `OSError`."""
    return Table(_open_or_make(path, kind), kind, processes, number, clock)


def _open_or_make(path: Path, kind: TableKind) -> int:
    """A descriptor of the valid file. One process at a time makes any in a folder. Raises `OSError`.

    `TimeoutError` is one of those: another process is at it, for long. To be tried again later.
    """
    found = _open_valid(path, kind)
    if found >= 0:
        return found
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for attempt in range(_MAKING):
            if attempt:
                time.sleep(_PAUSE)
            alone = _lock_folder(folder)
            found = _open_valid(path, kind)
            if found >= 0 or alone:
                return found if found >= 0 else _make(path, kind)
    finally:
        os.close(folder)
    raise TimeoutError("another process makes a file of live state, and doesn't end that")


def _open_valid(path: Path, kind: TableKind) -> int:
    """A descriptor of the file as it is; -1 without a valid one. Raises `OSError`."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    try:
        if os.fstat(descriptor).st_size == kind.size and os.pread(descriptor, MARK, 0) == kind.mark:
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return -1


def _make(path: Path, kind: TableKind) -> int:
    hidden = path.with_name(f".{path.name}")
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, kind.pages * _PAGE)
        os.ftruncate(descriptor, kind.size)
        os.pwrite(descriptor, kind.mark, 0)
        hidden.rename(path)
    except OSError:
        os.close(descriptor)
        hidden.unlink(missing_ok=True)
        raise
    return descriptor


def _lock_folder(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
