"""What the processes of a proxy choose together for a key, until a moment: where a session is, whose turn is next.

A choice has one line of the proxy's table, which belongs to no process: all write it, and the last one holds.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from actors.bounded import keep
from actors.state.live_state import LiveState
from actors.state.table import NO_LINE, NUMBERS, OWNER, RELEASED, UNTIL, Table

VALUE: Final = NUMBERS + 2
"""The word with what stands for a choice."""
CHOICES_ALONE: Final = 10_000
"""Choices that hold in one process; the oldest makes room."""
_SAFE: Final = 1.0
"""Seconds before its end from which on a choice is written under the lock alone: its line may be used again."""
CACHED_KEYS: Final = 4_096
"""Choices whose lines are remembered."""


class _KeyLines(NamedTuple):
    """The lines of a key, as of this value of the word of its bucket."""

    key: int
    bucket: int
    word: int
    lines: tuple[int, ...]


class SharedChoices:
    """What is chosen for keys of one kind, by all processes of a proxy.

    A choice that can't have one holds in this process alone.
    """

    __slots__ = ("_alone", "_digests", "_kind", "_known", "_live")

    def __init__(self, state: LiveState, *kind: str) -> None:
        self._live = state.proxy
        self._digests = state.digests
        self._kind = kind
        self._alone: dict[bytes, tuple[int, float]] = {}
        self._known: dict[bytes, _KeyLines] = {}

    def choice(self, digest: bytes) -> tuple[int, float]:
        """What stands for the choice, and until when by the clock, which may be over; 0 and 0 for none."""
        table, value, end = self._live.present(), 0, 0
        alone = self._alone.get(digest, (0, 0.0)) if self._alone else (0, 0.0)
        if table is not None:
            found, words = self._lines_of(table, digest), table.words
            key = found.key
            for line in found.lines:
                read, until = words[line + VALUE], words[line + UNTIL]
                if until > end and words[line] == key and words[line + OWNER]:
                    value, end = read, until
        return max((value, end / 1000), alone, key=lambda each: each[1])

    def keep(self, digest: bytes, value: int, until: float) -> None:
        """This is the choice from now on. `value` has 64 bits and isn't 0."""
        table = self._live.made()
        if table is None or not self._write(table, digest, value, until):
            keep(self._alone, digest, (value, until), CHOICES_ALONE)
        elif self._alone:
            self._alone.pop(digest, None)

    def _write(self, table: Table, digest: bytes, value: int, until: float) -> bool:
        words, end = table.words, math.ceil(1000 * until)
        line = self._line(table, digest, _SAFE)
        if line:
            words[line + VALUE] = value
            words[line + UNTIL] = end
            return True
        key = self._lines_of(table, digest).key
        with table.exclusive(key) as alone:
            line = (self._line(table, digest, 0.0) or table.take(key, RELEASED)) if alone else NO_LINE
            if line:
                words[line + VALUE] = value
                words[line + UNTIL] = end
        return line != NO_LINE

    def _lines_of(self, table: Table, digest: bytes) -> _KeyLines:
        """The bucket is walked only when a line of it has become another's."""
        known = self._known.get(digest)
        if known is not None and table.words[known.bucket] == known.word:
            return known
        key = known.key if known is not None else self._digests.of("choice", *self._kind, digest.hex())
        bucket = table.bucket(key)
        word = table.words[bucket]
        found = _KeyLines(key, bucket, word, tuple(table.all_lines(key)))
        keep(self._known, digest, found, CACHED_KEYS)
        return found

    def _line(self, table: Table, digest: bytes, seconds: float) -> int:
        """The line of a choice that holds for so long still."""
        words, until = table.words, 1000 * (self._live.clock() + seconds)
        key, _bucket, _word, lines = self._lines_of(table, digest)
        return next((line for line in lines if words[line + UNTIL] > until and words[line] == key), NO_LINE)
