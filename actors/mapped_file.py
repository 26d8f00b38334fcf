"""Files that several processes map: how one is made, and known again.

A file begins with a mark of its format, its kind and the boot of the machine, since its times are of the monotonic
clock, which all processes share. No process sees one before it is complete. All its blocks are allocated when it is
made: a hole on a full file system would end the process that touches it. One of another boot, kind or size is none.

A file of numbers, of which one process writes, is a header of `HEADER` words, then the numbers. A word has 64 bits, is
aligned and without a sign; it is written at once, so no reader sees half of one. Words that belong together are not
written together: who writes them says in which order, and what a reader between two of them sees.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from config.files.paths import boot_id

MARK: Final = 24
"""Bytes of a mark."""


def mark(magic: bytes, kind: bytes = b"") -> bytes:
    """The mark of a file of this boot; `magic` are eight bytes that name the format."""
    return magic + hashlib.blake2b(kind + (boot_id() or b""), digest_size=MARK - len(magic)).digest()


def make_file(path: Path, size: int, fill: Callable[[memoryview], None]) -> memoryview:
    """The bytes of a new file in the place of any that is there, zeros but for what `fill` writes. Raises `OSError`."""
    hidden = path.with_name(f".{path.name}")
    descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
        raw = memoryview(mmap.mmap(descriptor, size))
        fill(raw)
        hidden.rename(path)
    except OSError:
        hidden.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return raw


def map_file(path: Path, fits: Callable[[int], bool], writes: bool = True) -> memoryview | None:
    """The bytes of the file as it is; None without one whose size `fits`. Raises `OSError`."""
    try:
        descriptor = os.open(path, (os.O_RDWR if writes else os.O_RDONLY) | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        access = mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ
        return memoryview(mmap.mmap(descriptor, size, access=access)) if fits(size) else None
    finally:
        os.close(descriptor)


HEADER: Final = 8
"""Words of the header: the mark takes three, the others are for the kind of file."""
_MAGIC = b"pfwork\0\1"

Words: TypeAlias = "memoryview[int]"


class FileKind(NamedTuple):
    """What a file is: its name, and its words behind the header."""

    name: str
    words: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return 8 * (HEADER + self.words)


def make(path: Path, kind: FileKind) -> Words:
    """A new file in the place of any that is there, all numbers at zero. Raises `OSError`."""

    def fill(raw: memoryview) -> None:
        raw[:MARK] = _mark_of(kind)

    return make_file(path, kind.bytes, fill).cast("Q")


def open_existing(path: Path, kind: FileKind, writes: bool) -> Words | None:
    """The file as it is; None without one of this kind and this boot. Raises `OSError`."""
    raw = map_file(path, lambda size: size == kind.bytes, writes)
    return raw.cast("Q") if raw is not None and raw[:MARK] == _mark_of(kind) else None


def private(kind: FileKind) -> Words:
    """The numbers of such a file in the memory of this process alone."""
    return memoryview(bytearray(kind.bytes)).cast("Q")


def _mark_of(kind: FileKind) -> bytes:
    return mark(_MAGIC, b"%b\0" % kind.name.encode())
