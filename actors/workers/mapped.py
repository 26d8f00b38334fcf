"""A file of numbers that several processes map, of which one writes.

It is a header of `HEADER` words, then the numbers. A word has 64 bits, is aligned and without a sign; it is written at
once, so no reader sees half of one. Words that belong together are not written together: who writes them says in which
order, and what a reader between two of them sees.

A file belongs to one boot of the machine and to one kind (`actors.mapped_file`). One of another boot, kind or size is
none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from actors.mapped_file import MARK, make_file, map_file, mark

HEADER: Final = 8
"""Words of the header: the mark takes three, the others are for the kind of file."""
_MAGIC = b"pfwork\0\1"

Words: TypeAlias = "memoryview[int]"


class Kind(NamedTuple):
    """What a file is: its name, and its words behind the header."""

    name: str
    words: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return 8 * (HEADER + self.words)


def make(path: Path, kind: Kind) -> Words:
    """A new file in the place of any that is there, all numbers at zero. Raises `OSError`."""

    def fill(raw: memoryview) -> None:
        raw[:MARK] = _mark(kind)

    return make_file(path, kind.bytes, fill).cast("Q")


def open_existing(path: Path, kind: Kind, writes: bool) -> Words | None:
    """The file as it is; None without one of this kind and this boot. Raises `OSError`."""
    raw = map_file(path, lambda size: size == kind.bytes, writes)
    return raw.cast("Q") if raw is not None and raw[:MARK] == _mark(kind) else None


def private(kind: Kind) -> Words:
    """The numbers of such a file in the memory of this process alone."""
    return memoryview(bytearray(kind.bytes)).cast("Q")


def _mark(kind: Kind) -> bytes:
    return mark(_MAGIC, b"%b\0" % kind.name.encode())
