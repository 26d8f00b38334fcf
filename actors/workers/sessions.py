"""Which sessions of one proxy have left their first choice, for what, and until when.

The file is `SETS` sets of `WAYS` entries of four words: the digest of the session in two, what stands for its choice,
and the end of that in milliseconds of the monotonic clock. Of all processes the entry with the latest end counts. In a
full set the entry that ends first makes room.

The end is written last, and is 0 before an entry changes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from actors.mapped_file import HEADER, FileKind, Words

SETS: Final = 2048
WAYS: Final = 8
_ENTRY: Final = 4
_SET: Final = WAYS * _ENTRY
_SECOND_HALF, _VALUE, _END = 1, 2, 3

KIND: Final = FileKind("sessions", SETS * _SET)


class Choice(NamedTuple):
    """What a session has. `value` has 64 bits, `end` is milliseconds of the monotonic clock; 0 and 0: nothing."""

    value: int
    end: int


NO_CHOICE: Final = Choice(0, 0)


def halves(digest: bytes) -> tuple[int, int]:
    """A digest of 16 bytes as two numbers, the first of which isn't 0."""
    return int.from_bytes(digest[:8], "little") or 1, int.from_bytes(digest[8:16], "little")


class SessionTable:
    """The sessions of one process, for itself to write or for another to read."""

    __slots__ = ("_words",)

    def __init__(self, words: Words) -> None:
        self._words = words

    def read(self, session: tuple[int, int]) -> Choice:
        """The choice of a session, which may have ended."""
        words, at = self._words, self._find(session)
        if at < 0:
            return NO_CHOICE
        end, value = words[at + _END], words[at + _VALUE]
        unchanged = words[at] == session[0] and words[at + _SECOND_HALF] == session[1] and words[at + _END] == end
        return Choice(value, end) if unchanged else NO_CHOICE

    def write(self, session: tuple[int, int], choice: Choice) -> None:
        """Keep a choice."""
        words, at = self._words, self._find(session)
        if at < 0:
            base = HEADER + session[0] % SETS * _SET
            at = min(range(base, base + _SET, _ENTRY), key=lambda each: words[each + _END])
        words[at + _END] = 0
        words[at], words[at + _SECOND_HALF] = session
        words[at + _VALUE] = choice.value
        words[at + _END] = choice.end

    def _find(self, session: tuple[int, int]) -> int:
        base = HEADER + session[0] % SETS * _SET
        words, (first, second) = self._words, session
        for at, half in enumerate(words[base : base + _SET : _ENTRY].tolist()):
            if half == first and words[base + _ENTRY * at + _SECOND_HALF] == second:
                return base + _ENTRY * at
        return -1
