"""A file of numbers that several processes map, of which one writes.

It is a header of `HEADER` words, then the numbers. A word has 64 bits, is aligned and without a sign; it is written at
once, so no reader sees half of one. Words that belong together are not written together: who writes them says in which
order, and what a reader between two of them sees.

A file belongs to one boot of the machine, since its times are of the monotonic clock, and to one kind. One of another
boot, kind or size is none. All its blocks are allocated when it is made: a hole on a full file system would end the
process that touches it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from config.files.accounts_table import boot_id

HEADER: Final = 8
"""Words of the header: the mark takes three, the others are for the kind of file."""
_MAGIC = b"pfwork\0\1"
_MARK = 24

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
    hidden = path.with_name(f".{path.name}")
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, kind.bytes)
        raw = memoryview(mmap.mmap(descriptor, kind.bytes))
        raw[:_MARK] = _mark(kind)
        hidden.rename(path)
    except OSError:
        hidden.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return raw.cast("Q")


def open_existing(path: Path, kind: Kind, writes: bool) -> Words | None:
    """The file as it is; None without one of this kind and this boot. Raises `OSError`."""
    try:
        descriptor = os.open(path, (os.O_RDWR if writes else os.O_RDONLY) | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(descriptor).st_size != kind.bytes:
            return None
        access = mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ
        raw = memoryview(mmap.mmap(descriptor, kind.bytes, access=access))
    finally:
        os.close(descriptor)
    return raw.cast("Q") if raw[:_MARK] == _mark(kind) else None


def private(kind: Kind) -> Words:
    """The numbers of such a file in the memory of this process alone."""
    return memoryview(bytearray(kind.bytes)).cast("Q")


def _mark(kind: Kind) -> bytes:
    return _MAGIC + hashlib.blake2b(b"%b\0%b" % (kind.name.encode(), boot_id() or b""), digest_size=16).digest()
