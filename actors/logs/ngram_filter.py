"""Whether a block may contain a word, known without reading it: a set of four-byte pieces, as bits.

A text that contains a word contains every run of four bytes of it. So of each block the set of all such runs
("n-grams") of its texts is kept as a Bloom filter with one hash function, the remainder by a prime: bit
`ngram % prime` is set. A word with an n-gram that isn't there isn't in the block. One function is enough, since a word
tests several n-grams: with an eighth of the bits set, a word of eight bytes (five n-grams) is a false positive once in
30,000 blocks. A word of fewer than four bytes has no n-gram and may be anywhere.

N-grams come from views of the same bytes as 32-bit numbers at the four possible offsets, which is the work of the
interpreter's own loops. Letters A to Z are folded by the caller.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

NGRAM = 4
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
_BITS_PER_NGRAM = 6
_DIGITS = bytes.maketrans(b"\x00\x01", b"01")


def build_filter(texts: bytes) -> bytes:
    """The filter of all that is in `texts`, which are in lower case and separated by line feeds."""
    ngrams = _ngrams(b"\n" + texts + b"\n")
    bits = min(_LARGEST, max(_SMALLEST, 1 << (len(ngrams) * _BITS_PER_NGRAM).bit_length()))
    prime = PRIMES[bits]
    flags = bytearray(bits)
    for ngram in ngrams:
        flags[ngram % prime] = 1
    return int(flags.translate(_DIGITS), 2).to_bytes(bits // 8, "big")


def may_contain(filter_bits: bytes, words: Iterable[frozenset[int]]) -> bool:
    """True if all n-grams of these words (`ngrams_of`) are in the filter."""
    prime = PRIMES[len(filter_bits) * 8]
    for ngrams in words:
        for ngram in ngrams:
            place = ngram % prime
            if not filter_bits[place >> 3] & (0x80 >> (place & 7)):
                return False
    return True


def ngrams_of(word: bytes) -> frozenset[int]:
    """The n-grams of a word in lower case."""
    return frozenset(_ngrams(word))


def _ngrams(text: bytes) -> set[int]:
    """All runs of four bytes as numbers, the first byte the lowest."""
    found: set[int] = set()
    whole = memoryview(text)
    for offset in range(NGRAM):
        length = (len(text) - offset) // NGRAM * NGRAM
        if length > 0:
            found.update(whole[offset : offset + length].cast("I"))
    return found if sys.byteorder == "little" else {_swapped(ngram) for ngram in found}


def _swapped(ngram: int) -> int:
    return int.from_bytes(ngram.to_bytes(4, "big"), "little")
