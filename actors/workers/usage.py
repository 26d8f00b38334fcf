"""What one process has counted of each account that has a quota: bytes, cumulative since it began to hold the account.

The file is `SETS` sets of `WAYS` entries of four words: the digest of the account, the instance of the process, the
serial under which it reports the account to the metrics collector, and the bytes. Instance and serial say which count
of the collector an entry goes on from. An account has an entry for as long as the process holds it; where all of a set
are taken it has none, and the others see its bytes when the collector has them.

The digest is written last, and taken away first. A reader verifies it after it has read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from actors.mapped_file import HEADER, FileKind, Words

SETS: Final = 2048
WAYS: Final = 8
_ENTRY: Final = 4
_SET: Final = WAYS * _ENTRY
_INSTANCE, _SERIAL, _BYTES = 1, 2, 3

KIND: Final = FileKind("usage", SETS * _SET)

NO_PLACE: Final = -1


class Used(NamedTuple):
    """What a process has counted of an account."""

    instance: int
    serial: int
    bytes: int


class UsageTable:
    """The accounts of one process, for itself to write or for another to read."""

    __slots__ = ("_words",)

    def __init__(self, words: Words) -> None:
        self._words = words

    def read(self, digest: int) -> Used | None:
        """What was counted of an account; None where it is not held."""
        words, at = self._words, self._find(digest)
        if at < 0:
            return None
        used = Used(words[at + _INSTANCE], words[at + _SERIAL], words[at + _BYTES])
        return used if words[at] == digest else None

    # --- for the process whose table it is ---

    def clean(self) -> None:
        """The process that counted here before has ended."""
        self._words[HEADER::_ENTRY] = memoryview(bytes(8 * SETS * WAYS)).cast("Q")

    def begin(self, digest: int, used: Used) -> int:
        """Its place from now on; `NO_PLACE` without one."""
        words, base = self._words, HEADER + digest % SETS * _SET
        free = [at for at in range(base, base + _SET, _ENTRY) if words[at] in (0, digest)]
        if not free:
            return NO_PLACE
        at = free[0]
        words[at] = 0
        for place, number in enumerate(used, _INSTANCE):
            words[at + place] = number
        words[at] = digest
        return at

    def count(self, at: int, counted: int) -> None:
        """So many bytes were counted at a place."""
        self._words[at + _BYTES] = counted

    def end(self, at: int) -> None:
        """The account is held no more."""
        self._words[at] = 0

    def _find(self, digest: int) -> int:
        base = HEADER + digest % SETS * _SET
        digests = self._words[base : base + _SET : _ENTRY].tolist()
        return base + _ENTRY * digests.index(digest) if digest in digests else -1
