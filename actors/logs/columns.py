"""Records by columns: how a block of them is compressed, and which of its rows match a condition.

A column of texts is a dictionary of its different values and, for each row, the code of its value: its place there. So
a condition is evaluated once for each different value, and then by one table lookup a row in the interpreter's own
loops. Which rows match a condition is a *mask*: one byte for each row, 1 or 0; masks are joined as large integers.

Numbers are eight bytes a row, written plane by plane (first all lowest bytes, then the next, …), where the upper
planes are nearly constant and vanish in the compression. Times are whole microseconds.

Whether a block may contain a word, known without reading it: a set of four-byte pieces, as bits. A text that contains a
word contains every run of four bytes of it. So of each block the set of all such runs ("n-grams") of its texts is kept
as a Bloom filter with one hash function, the remainder by a prime: bit `ngram % prime` is set. A word with an n-gram
that isn't there isn't in the block. One function is enough, since a word tests several n-grams: with an eighth of the
bits set, a word of eight bytes (five n-grams) is a false positive once in 30,000 blocks. A word of fewer than four
bytes has no n-gram and may be anywhere.

N-grams come from views of the same bytes as 32-bit numbers at the four possible offsets, which is the work of the
interpreter's own loops. Letters A to Z are folded by the caller.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgpack

from actors.logs.record_schema import CODES, FACETS, NUMBERS, OTHERS, REQUEST_ID, TARGET, TIMESTAMP, Row, empty_record
from config.text.access_fields import ACCESS_FIELDS

LEVEL = 2
"""Of the compression: what more of it gains in size it costs three times over in time."""
_MICRO = 1_000_000
_LEAST, _MOST = -(2**63), 2**63 - 1
_FEW = 3
_WIDE = 256
"""Different values from which on a code takes two bytes."""


class DictionaryColumn:
    """A column of texts. `blob` is its different values with line feeds between, in UTF-8."""

    __slots__ = ("_folded", "_lookups", "_values", "blob", "codes", "count")

    def __init__(self, blob: bytes, count: int, codes: Sequence[int]) -> None:
        self.blob = blob
        self.count = count
        self.codes = codes
        self._lookups = 0
        self._values: list[str] | None = None
        self._folded: bytes | None = None

    @classmethod
    def of(cls, column: Sequence[str]) -> DictionaryColumn:
        """Of the values of all rows, which hold no line feed."""
        different = list(dict.fromkeys(column))
        code_of = {value: code for code, value in enumerate(different)}
        codes = map(code_of.__getitem__, column)
        blob = "\n".join(different).encode()
        return cls(blob, len(different), bytes(codes) if len(different) <= _WIDE else array("H", codes))

    @classmethod
    def deserialize(cls, stored: list[Any]) -> DictionaryColumn:
        """The opposite of `serialize`."""
        blob, count, codes = stored
        if count <= _WIDE:
            return cls(blob, count, codes)
        return cls(blob, count, array("H", codes) if codes else range(count))

    def serialize(self) -> list[Any]:
        """For msgpack. Where all values differ their codes are their numbers, and left out."""
        all_differ = self.count == len(self.codes) > _WIDE
        return [self.blob, self.count, b"" if all_differ else bytes(self.codes)]

    @property
    def values(self) -> list[str]:
        """The different values."""
        if self._values is None:
            self._values = self.blob.decode().split("\n")
        return self._values

    @property
    def folded(self) -> bytes:
        """`blob` with the letters A to Z in lower case."""
        if self._folded is None:
            self._folded = self.blob.lower()
        return self._folded

    def value(self, row: int) -> str:
        """Of a row. The first few are decoded singly, then all at once."""
        code = self.codes[row]
        self._lookups += 1
        if self._values is None and self._lookups <= _FEW:
            return self.blob.split(b"\n", code + 1)[code].decode()
        return self.values[code]

    def containing(self, word: bytes) -> bytes | None:
        """The mask of rows whose value contains `word`, which is in lower case; None: no row."""
        if word not in self.folded:
            return None
        return self._mask([word in value for value in self.folded.split(b"\n")])

    def listing(self, item: bytes) -> bytes | None:
        """The mask of rows whose value, a list with commas, has `item`; None: no row."""
        if item not in self.blob:
            return None
        return self._mask([item in value.split(b",") for value in self.blob.split(b"\n")])

    def parenthesised(self) -> DictionaryColumn:
        """The same with parentheses around each value that isn't empty."""
        values = (b"(" + value + b")" if value else b"" for value in self.blob.split(b"\n"))
        return DictionaryColumn(b"\n".join(values), self.count, self.codes)

    def equal_to(self, wanted: Collection[str]) -> bytes | None:
        """The mask of rows whose value is one of these; None: no row."""
        framed = b"\n" + self.blob + b"\n"
        encoded = (each.encode("utf-8", "surrogatepass") for each in wanted if "\n" not in each)
        found = [framed.find(b"\n" + each + b"\n") for each in encoded]
        codes = [framed.count(b"\n", 0, at) for at in found if at >= 0]
        return self._rows_with(codes) if codes else None

    def _rows_with(self, codes: list[int]) -> bytes:
        """The mask of rows with these codes."""
        if not isinstance(self.codes, array) or len(codes) > 1:
            flags = [False] * self.count
            for code in codes:
                flags[code] = True
            return self._mask(flags)
        mask, at, (code,) = bytearray(len(self.codes)), -1, codes
        try:
            while True:
                at = self.codes.index(code, at + 1)
                mask[at] = 1
        except ValueError:  # there is no other
            return bytes(mask)

    def _mask(self, flags: list[bool]) -> bytes:
        if isinstance(self.codes, bytes):
            return self.codes.translate(bytes(flags).ljust(_WIDE, b"\0"))
        return bytes(map(flags.__getitem__, self.codes))


Load = Callable[[str], bytes]
"""Reads a segment of a block on disk. A segment is some columns, by name, each compressed by itself."""
SEGMENTS = {"facets": FACETS, "targets": (TARGET,), "figures": (TIMESTAMP, *NUMBERS, REQUEST_ID, *OTHERS)}
"""The columns of each; what is read together lies together."""
_SEGMENT_OF = {name: segment for segment, names in SEGMENTS.items() for name in names}


class RecordColumns:
    """The columns of some records, from the records themselves or from their segments, which are read when needed."""

    def __init__(self, count: int, load: Load | None = None) -> None:
        self.count = count
        self._load = load
        self._segments: dict[str, dict[str, bytes]] = {}
        self._texts: dict[str, DictionaryColumn] = {}
        self._numbers: dict[str, array[int]] = {}

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> RecordColumns:
        """Of valid rows (`actors.logs.record_schema`), at least one and at most 65,535."""
        made = cls(len(rows))
        for name, column in zip(ACCESS_FIELDS, zip(*rows, strict=True), strict=True):
            if name == TIMESTAMP:
                made._numbers[name] = _whole([value * _MICRO for value in column])
            elif name in NUMBERS:
                made._numbers[name] = _whole(column)
            elif name in CODES:
                made._texts[name] = DictionaryColumn.of(list(map(str, map(int, column))))
            else:
                made._texts[name] = DictionaryColumn.of(column)
        return made

    def texts(self, name: str) -> DictionaryColumn:
        """A column of texts: a facet, the target or the request's id."""
        if name not in self._texts:
            self._texts[name] = DictionaryColumn.deserialize(self._unpacked(name))
        return self._texts[name]

    def searched_texts(self, name: str) -> DictionaryColumn:
        """A column of texts as words are searched in it: a reason is in parentheses, as in the message."""
        return self.texts(name).parenthesised() if name == "reason" else self.texts(name)

    def numbers(self, name: str) -> array[int]:
        """A column of numbers."""
        if name not in self._numbers:
            self._numbers[name] = _unplaned(self._unpacked(name))
        return self._numbers[name]

    def times(self) -> array[int]:
        """Microseconds since 1970, by row."""
        return self.numbers(TIMESTAMP)

    def record(self, row: int) -> dict[str, Any]:
        """One record by the names of its fields."""
        record = empty_record()
        for name in ACCESS_FIELDS:
            if name in (TIMESTAMP, *NUMBERS):
                record[name] = self.numbers(name)[row]
            else:
                record[name] = self.texts(name).value(row)
        record[TIMESTAMP] /= _MICRO
        for name in CODES:
            record[name] = int(record[name] or 0)
        return record

    def segments(self) -> dict[str, bytes]:
        """The segments for the disk, of columns that were made of rows."""
        return {
            segment: msgpack.packb({name: self._packed(name) for name in names}) for segment, names in SEGMENTS.items()
        }

    def searched(self, names: Collection[str]) -> bytes:
        """All different texts of these columns in lower case, with line feeds between."""
        return b"\n".join(self.searched_texts(name).folded for name in names)

    def _packed(self, name: str) -> bytes:
        column = _planes(self._numbers[name]) if name in self._numbers else self._texts[name].serialize()
        return zlib.compress(msgpack.packb(column), LEVEL)

    def _unpacked(self, name: str) -> Any:
        return msgpack.unpackb(zlib.decompress(self._segment(_SEGMENT_OF[name])[name]))

    def _segment(self, segment: str) -> dict[str, bytes]:
        if segment not in self._segments:
            assert self._load is not None  # columns that were made of rows are all there
            self._segments[segment] = msgpack.unpackb(self._load(segment))
        return self._segments[segment]


def conjunction(masks: Collection[bytes]) -> bytes:
    """1 where all are 1. At least one; all of one length."""
    first, *others = masks
    joined = int.from_bytes(first, "little")
    for mask in others:
        joined &= int.from_bytes(mask, "little")
    return joined.to_bytes(len(first), "little") if others else first


def disjunction(masks: Collection[bytes]) -> bytes:
    """1 where any is 1. At least one; all of one length."""
    first, *others = masks
    joined = int.from_bytes(first, "little")
    for mask in others:
        joined |= int.from_bytes(mask, "little")
    return joined.to_bytes(len(first), "little") if others else first


def _whole(column: Sequence[float]) -> array[int]:
    """Integers of 64 bits; a number beyond them becomes the nearest of them."""
    try:
        return array("q", map(round, column))
    except (OverflowError, ValueError):  # beyond 64 bits; infinite; not a number
        return array("q", [_nearest(value) for value in column])


def _nearest(value: float) -> int:
    if value != value:
        return 0
    return max(_LEAST, min(_MOST, round(value))) if abs(value) < 2.0**64 else (_MOST if value > 0 else _LEAST)


def _planes(numbers: array[int]) -> bytes:
    raw = numbers.tobytes()
    return b"".join(raw[plane::8] for plane in range(8))


def _unplaned(planes: bytes) -> array[int]:
    count = len(planes) // 8
    raw = bytearray(len(planes))
    for plane in range(8):
        raw[plane::8] = planes[plane * count : (plane + 1) * count]
    return array("q", bytes(raw))


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
