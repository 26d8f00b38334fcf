"""Whether a block may hold a word, known without reading it: a set of four-byte pieces, as bits.

A text that contains a word contains every run of four bytes of it. So of each block the set of all such runs ("grams")
of its texts is kept as a Bloom filter with one hash function, the remainder by a prime: bit `gram % prime` is set. A
word whose grams aren't all there isn't in the block. One function is enough, since a word asks for several grams: with
an eighth of the bits set, a word of eight bytes (five grams) is believed wrongly once in 30,000 blocks. A word of
fewer than four bytes has no gram and may be anywhere.

Grams come from views of the same bytes as 32-bit numbers at the four possible offsets, which is the work of the
interpreter's own loops. Letters A to Z are folded by the caller.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

GRAM = 4
PRIMES = dict(
    zip(
        (1 << power for power in range(10, 19)),
        (821, 1901, 3847, 7523, 13877, 28319, 60089, 115771, 238361),
        strict=True,
    )
)
"""By the bits that a filter has. Not the largest ones below: near a power of two the remainders of letters and digits
fall together. These were tried with words, numbers and hexadecimal, and err no more often than chance would."""
_SMALLEST, _LARGEST = min(PRIMES), max(PRIMES)
_BITS_PER_GRAM = 6
_DIGITS = bytes.maketrans(b"\x00\x01", b"01")


def filter_of(texts: bytes) -> bytes:
    """The filter of all that is in `texts`, which are in lower case and separated by line feeds."""
    grams = _grams(b"\n" + texts + b"\n")
    bits = min(_LARGEST, max(_SMALLEST, 1 << (len(grams) * _BITS_PER_GRAM).bit_length()))
    prime = PRIMES[bits]
    flags = bytearray(bits)
    for gram in grams:
        flags[gram % prime] = 1
    return int(flags.translate(_DIGITS), 2).to_bytes(bits // 8, "big")


def may_hold(filter_bits: bytes, words: Iterable[frozenset[int]]) -> bool:
    """Are all grams of these words in the filter? `grams_of` gives them."""
    prime = PRIMES[len(filter_bits) * 8]
    for grams in words:
        for gram in grams:
            place = gram % prime
            if not filter_bits[place >> 3] & (0x80 >> (place & 7)):
                return False
    return True


def grams_of(word: bytes) -> frozenset[int]:
    """Of a word in lower case."""
    return frozenset(_grams(word))


def _grams(text: bytes) -> set[int]:
    """All runs of four bytes as numbers, the first byte the lowest."""
    found: set[int] = set()
    whole = memoryview(text)
    for offset in range(GRAM):
        length = (len(text) - offset) // GRAM * GRAM
        if length > 0:
            found.update(whole[offset : offset + length].cast("I"))
    return found if sys.byteorder == "little" else {_swapped(gram) for gram in found}


def _swapped(gram: int) -> int:
    return int.from_bytes(gram.to_bytes(4, "big"), "little")
