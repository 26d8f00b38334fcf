"""What one process counts by key, of clients, accounts, credentials and rules: open connections, and requests.

The file is `SETS` sets of `WAYS` entries of eight words: the digest of the key, its connections, the slot that the last
request fell into, and five words with ten counts of 32 bits, one for each of the last ten slots. A slot is a ninth of a
minute, so that ten of them always cover a minute, and never more than 67 seconds.

A key has its place in the set that its digest names. In a full set it takes the place of the entry without connections
whose last request is the oldest; where all have connections it has none, and counts in its process alone. With 8,000
keys in use that happens to about one of them.

The digest is written last, and taken away first. A reader verifies it after it has read, so it never takes the numbers
of one key for those of another.
"""

from __future__ import annotations

import hashlib
from typing import Final

from actors.bounded import keep
from actors.mapped_file import HEADER, FileKind, Words

SETS: Final = 4096
WAYS: Final = 8
_ENTRY: Final = 8
_SET: Final = WAYS * _ENTRY
_DIGEST, _CONNECTIONS, _SLOT, _COUNTS = range(4)

SLOTS: Final = 10
"""Slots that count."""
SLOT_SECONDS: Final = 60 / (SLOTS - 1)

DIGESTS_KEPT: Final = 4096

KIND: Final = FileKind("keys", SETS * _SET)


class Digests:
    """Numbers that stand for the keys of one proxy in all its processes."""

    def __init__(self, proxy_id: str) -> None:
        self._begun = hashlib.blake2b(digest_size=8, key=proxy_id.encode()[:64])
        self._known: dict[tuple[str, ...], int] = {}

    def of(self, *parts: str) -> int:
        """A number of 64 bits that isn't 0. Those of the keys that were needed last are remembered."""
        digest = self._known.get(parts)
        if digest is None:
            hashed = self._begun.copy()
            hashed.update("\0".join(parts).encode("utf-8", "surrogateescape"))
            digest = int.from_bytes(hashed.digest(), "little") or 1
            keep(self._known, parts, digest, DIGESTS_KEPT)
        return digest


def slot_at(now: float) -> int:
    """The slot of a moment of the monotonic clock."""
    return int(now / SLOT_SECONDS)


class KeyTable:
    """The keys of one process, for itself to write or for another to read."""

    __slots__ = ("_counts", "_words")

    def __init__(self, words: Words) -> None:
        self._words = words
        self._counts: Words = words.cast("B").cast("I")

    def connections(self, digest: int) -> int:
        """Open connections of a key."""
        words, at = self._words, self._find(digest)
        if at < 0:
            return 0
        count = words[at + _CONNECTIONS]
        return count if words[at] == digest else 0

    def requests(self, digest: int, slot: int) -> int:
        """Requests of a key in the ten slots up to this one."""
        words, at = self._words, self._find(digest)
        if at < 0:
            return 0
        total = self._sum(at, slot)
        return total if words[at] == digest else 0

    def by_age(self, digest: int, slot: int) -> list[int]:
        """Requests of a key in each of the ten slots, that of `slot` first."""
        at = self._find(digest)
        if at < 0:
            return [0] * SLOTS
        first, last = 2 * (at + _COUNTS), self._words[at + _SLOT]
        ages = (slot - age for age in range(SLOTS))
        return [self._counts[first + each % SLOTS] if last - SLOTS < each <= last else 0 for each in ages]

    # --- for the process whose table it is ---

    def clean(self) -> None:
        """The process that counted here before has ended: none of its connections is left. Its requests were made."""
        number = SETS * WAYS
        self._words[HEADER + _CONNECTIONS :: _ENTRY] = memoryview(bytes(8 * number)).cast("Q")

    def set_connections(self, digest: int, count: int) -> bool:
        """So many are open. Returns False when the key has no place."""
        at = self._find(digest)
        if at < 0:
            if not count:
                return True
            at = self._place(digest)
            if at < 0:
                return False
        self._words[at + _CONNECTIONS] = count
        return True

    def add_requests(self, digest: int, slot: int, count: int = 1) -> bool:
        """Count so many in this slot. Returns False when the key has no place."""
        at = self._find(digest)
        if at < 0:
            at = self._place(digest)
            if at < 0:
                return False
        self._advance(at, slot)
        self._counts[2 * (at + _COUNTS) + slot % SLOTS] += count
        return True

    def _find(self, digest: int) -> int:
        """The first word of the entry; -1 without one."""
        base = HEADER + digest % SETS * _SET
        digests = self._words[base : base + _SET : _ENTRY].tolist()
        return base + _ENTRY * digests.index(digest) if digest in digests else -1

    def _place(self, digest: int) -> int:
        """An entry with all numbers at zero; -1 when there is no place."""
        words, base = self._words, HEADER + digest % SETS * _SET
        ends = range(base, base + _SET, _ENTRY)
        free = [at for at in ends if not words[at + _CONNECTIONS]]
        if not free:
            return -1
        at = min(free, key=lambda each: words[each] and words[each + _SLOT] + 1)
        words[at] = 0
        for place in range(1, _ENTRY):
            words[at + place] = 0
        words[at] = digest
        return at

    def _advance(self, at: int, slot: int) -> None:
        """Make this slot the last one. Slots in between are cleared before, which count no more in any case."""
        words, first = self._words, 2 * (at + _COUNTS)
        last = words[at + _SLOT]
        if slot <= last:
            return
        for passed in range(max(last + 1, slot - SLOTS + 1), slot + 1):
            self._counts[first + passed % SLOTS] = 0
        words[at + _SLOT] = slot

    def _sum(self, at: int, slot: int) -> int:
        counts, first = self._counts, 2 * (at + _COUNTS)
        last = self._words[at + _SLOT]
        late = slot - last
        if late >= SLOTS:
            return 0
        total = sum(counts[first : first + SLOTS])
        for passed in range(last + 1, slot + 1):
            total -= counts[first + passed % SLOTS]
        return total
